"""The pictures of section 4.5 for a model and images, as files."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from training.io.atomic import whole_file, write_text
from training.reporting.table import Table

_EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


def load(source: str, name: str | None = None, image_size: int = 224):
    """Returns a Keras model.

    Args:
        source: run directory, `.keras` file, or a checkpoint file or published name.
        name: the model's name, which a checkpoint does not say itself.
        image_size: for a checkpoint, whose position embeddings are resized.
    """
    import keras

    import keras_vit

    path = pathlib.Path(source)
    file = path / "model.keras" if path.is_dir() else path
    if file.suffix == ".keras" and file.exists():
        return keras.saving.load_model(file, compile=False)
    if not name:
        raise ValueError(
            "Expected a run directory with model.keras or a .keras file, or a checkpoint together "
            f"with --model, the name of its model. Received: {source}"
        )
    return keras_vit.create_model(name, num_classes=None, image_size=image_size, weights=source)


def preprocessing(model) -> str:
    """Returns the operations that make images of the model's size and range."""
    height, width = model.input_shape[1:3]
    return f"decode|resize([{height},{width}])|value_range(-1,1)"


def image_files(paths: Sequence[str]) -> list[pathlib.Path]:
    """Returns files, and of folders the images in and below them in order of their names."""
    found = []
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _EXTENSIONS)
            if not files:
                raise ValueError(
                    f"Expected images ({', '.join(_EXTENSIONS)}) in {path}. Received: none"
                )
            found += files
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"Expected an image or a folder of images. Received: {path}")
    return found


def images_of_files(files: Sequence[pathlib.Path], preprocess: str) -> np.ndarray:
    """Returns (images, height, width, 3) float32 of image files."""
    import tensorflow as tf

    from training.data.preprocessing.pipeline_text import Preprocess

    process = Preprocess(preprocess)
    images = []
    for file in files:
        try:
            image = process(tf.constant(file.read_bytes()), tf.constant([0, 0]))
        except tf.errors.InvalidArgumentError as error:
            reason = str(error).splitlines()[0][:200]
            raise ValueError(f"{file} cannot be read as an image: {reason}") from error
        images.append(image.numpy())
    return np.stack(images)


def images_of_dataset(
    name: str, split: str, preprocess: str, count: int, data_dir: str | None
) -> np.ndarray:
    """Returns the first `count` images of a data set, (images, height, width, 3) float32."""
    from training.data.load_dataset import load_dataset

    examples = load_dataset(name, split, preprocess=preprocess, data_dir=data_dir)
    images = itertools.islice(examples.as_numpy_iterator(), count)
    return np.stack([example["image"] for example in images])


def write_all(
    model, images: np.ndarray | None, output: os.PathLike, *, shown: int = 16, blur: float = 0.0
) -> tuple[list[str], dict[str, str]]:
    """Draws everything that can be drawn of a model.

    Args:
        model: a model of `keras_vit`.
        images: (images, height, width, 3) in [-1, 1], or None for what needs none.
        output: folder; each picture NAME.png comes with its numbers, NAME.csv.
        shown: images in the pictures that show images; numbers are of all images.
        blur: radius in pixels of the Gaussian that smooths rollouts.

    Returns:
        (names of the files that were written, {picture left out: reason}).
    """
    output = pathlib.Path(output)
    encoder = getattr(model, "encoder", model)
    pictures = {
        "filters": lambda: _filters(encoder),
        "position_similarity": lambda: _position_similarity(encoder),
        "rollout": lambda: _rollout(encoder, images, shown, blur),
        "attention_distance": lambda: _attention_distance(encoder, images),
    }
    if encoder is not model:
        pictures["reconstruction"] = lambda: _reconstruction(model, images, shown)
    written, left_out = [], {}
    for name, draw in pictures.items():
        reason = _obstacle(name, encoder, images)
        if reason:
            left_out[name] = reason
            continue
        figure, table = draw()
        with whole_file(output / f"{name}.png") as temporary:
            figure.savefig(temporary, format="png")
        write_text(output / f"{name}.csv", table.csv())
        written += [f"{name}.png", f"{name}.csv"]
    return written, left_out


def _obstacle(name, model, images):
    """Returns why a picture cannot be drawn, or None."""
    if name == "filters":
        return None
    if not hasattr(model, "grid_size"):
        return "a ResNet has neither attention nor position embeddings"
    if name == "position_similarity":
        if model.arguments["position_embedding"] in ("none", "relative"):
            return "the model adds no position embedding to its tokens"
        return None
    if images is None:
        return "it needs --images or --dataset"
    if name != "reconstruction" and model.arguments["attention"] == "axial":
        return "axial attention has one map for every row and column, not one for the image"
    return None


def _table(columns, values):
    """Returns a row for each entry of an array: its indices and its value."""
    return Table(columns, [(*i, f"{value:.6g}") for i, value in np.ndenumerate(values)])


def _filters(model):
    from keras_vit import analysis

    principal = analysis.embedding_filters(model)
    rows = [
        (component, f"{share:.6g}", *(f"{value:.6g}" for value in image.ravel()))
        for component, (image, share) in enumerate(
            zip(principal.filters, principal.explained, strict=True)
        )
    ]
    _, height, width, _ = principal.filters.shape
    pixels = [f"{y}_{x}_{c}" for y in range(height) for x in range(width) for c in "rgb"]
    table = Table(("component", "explained", *pixels), rows)
    return analysis.figures.filters_figure(principal.filters), table


def _position_similarity(model):
    from keras_vit import analysis

    similarity = analysis.position_similarity(model)
    table = _table(("row", "column", "other_row", "other_column", "similarity"), similarity)
    return analysis.figures.position_similarity_figure(similarity), table


def _rollout(model, images, shown, blur):
    from keras_vit import analysis

    maps = analysis.attention_rollout(model, images)
    figure = analysis.figures.rollout_figure(images[:shown], maps[:shown], blur=blur)
    return figure, _table(("image", "row", "column", "attention"), maps)


def _attention_distance(model, images):
    from keras_vit import analysis

    distances = analysis.attention_distance(model, images)
    figure = analysis.figures.attention_distance_figure(distances)
    return figure, _table(("layer", "head", "pixels"), distances)


def _reconstruction(masked, images, shown):
    from keras_vit import analysis

    found = analysis.reconstruct(masked, images[:shown])
    rows = [
        (image, position, f"{loss:.6g}")
        for image, (positions, losses) in enumerate(zip(found.positions, found.losses, strict=True))
        for position, loss in zip(positions, losses, strict=True)
    ]
    figure = analysis.figures.reconstruction_figure(images[:shown], found)
    return figure, Table(("image", "patch", "loss"), rows)
