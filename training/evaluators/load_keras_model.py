"""Loads a Keras model from its source: a run directory, a `.keras` file, a checkpoint."""

import dataclasses
import json
import logging
import os
import pathlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.errors import damage_named
from keras_vit.files.archives import saved_config
from keras_vit.photos.imagenet_classes import imagenet_classes

from ..config import schema
from ..data.sets import fingerprint
from ..data.sets.known_datasets import DATASETS, full_name
from ..engine.checkpoints import steps
from ..io.image_listing import EXTENSIONS
from ..io.paths import any_path, read_path

if typing.TYPE_CHECKING:
    import keras

logger = logging.getLogger("keras_vit")

# The range of this package's models and of Google's checkpoints.
KERAS_RANGE = (-1.0, 1.0)
# Keras adds these to the arguments of a saved model.
_KERAS_KEYS = {"name", "trainable", "trainable_layers", "quantized_layers", "dtype"}
_KERAS_KEYS |= {"class_names", "preprocessing", "activation"}
# Bytes that the names of its arrays alone take in a file.
_LEAST_OF_A_BLOCK = 1000


@dataclasses.dataclass(frozen=True)
class SourceModel:
    """A Keras model and what its source tells of it.

    Attributes:
        name: of the source, for tables.
        model: on images (batch, height, width, 3) in `KERAS_RANGE`.
        run: the config of the run that trained it, `config.json`; empty if it is not of a run.
    """

    name: str
    model: "keras.Model"
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes in the order of the logits, where they are known."""
        names = getattr(self.model, "class_names", None)
        return list(names) if names else None

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return image_size_of(self.model.input_shape)

    @property
    def preprocess(self) -> str:
        """The operations that it was evaluated with, or those of `resizing`."""
        known = getattr(self.model, "preprocessing", None)
        return self.run.get("eval_preprocess") or known or resizing(self.image_size)


def load_model(
    source: str | os.PathLike,
    *,
    name: str | None = None,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **arguments: Any,
) -> SourceModel:
    """Loads a Keras model. Nothing in the file is executed.

    Args:
        source: a run directory with `model.keras`, a `.keras` file, the published name of a
            classifier of ImageNet's 1,000 classes, or, with `name`, a checkpoint: the path or
            published name of an .npz or safetensors file.
        name: of a checkpoint's model, such as "ViT-B/16", which the file does not say.
        num_classes: of a checkpoint's head, which must fit; None leaves out the head and
            pre-training's hidden layer.
        image_size: in pixels, for a checkpoint, whose position embeddings are resized; None is
            224.
        **arguments: further constructor arguments of a checkpoint's model.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, or of another kind, or says itself what is given.
    """
    from keras_vit.checkpoints import load_checkpoint
    from keras_vit.checkpoints.published_weights import published_classifier
    from keras_vit.model_factory import create_model

    path = pathlib.Path(source)
    classifier = None if name or path.exists() else published_classifier(str(source))
    if classifier:
        name, num_classes = classifier.model, len(imagenet_classes())
        image_size = image_size or classifier.image_size
        arguments = {**classifier.arguments, **arguments}
    if name is not None:
        model = create_model(name, num_classes=num_classes, image_size=image_size, **arguments)
        skip = ("head", "pre_logits") if num_classes is None else ()
        load_checkpoint(model, source, skip=skip)
        return SourceModel(str(source), model)
    file = path / "model.keras" if path.is_dir() else path
    if not file.exists() or file.suffix != ".keras":
        raise (ValueError if file.exists() else FileNotFoundError)(
            "Expected a run directory with model.keras, which a run writes when it ends, a .keras "
            "file, or the published name of a classifier, such as augreg/B_16-imagenet2012. "
            f"Received: {source}, {without_model(path)}. A checkpoint needs the name of its model "
            "as well, such as --model=ViT-B/16."
        )
    refuse_facts(source, num_classes=num_classes, image_size=image_size, **arguments)
    config = path / "config.json"
    run = read_run_config(config) if config.is_file() else {}
    _, saved = _saved_model(file)
    import keras

    advice = "It is damaged, needs classes of another package, or holds code, which is not run."
    with damage_named(f"{file} cannot be loaded as a Keras model", advice):
        blocks, size = int(np.sum(saved.get("num_layers", 0))), file.stat().st_size
        if blocks * _LEAST_OF_A_BLOCK > size:
            raise ValueError(f"it claims {blocks} blocks, and has {size} bytes")
        model = keras.saving.load_model(file, compile=False, safe_mode=True)
    return SourceModel(str(source), model, run)


def refuse_facts(source: str | os.PathLike, **facts: Any) -> None:
    """Raises ValueError if facts of a checkpoint's model are given for a file that says them."""
    if any(value is not None for value in facts.values()):
        raise ValueError(
            "Expected --model, --image_size and --num_classes for a checkpoint alone, which does "
            f"not say them. Received: {source}."
        )


def require_ours(source: SourceModel) -> None:
    """Raises ValueError if the model is not of this package, which may be only a part of it.

    Others may take images of another range, and give probabilities.
    """
    from keras_vit.models.image_model import ImageModel

    if not isinstance(source.model, ImageModel):
        raise ValueError(
            f"Expected a model of keras_vit. Received: {source.name}, another model of Keras. If "
            "it calls one of ours, export it with keras-vit export hub: `predict`, `evaluate` and "
            "`few_shot` take the module. For `analyze`, save the model inside it."
        )


def without_model(path: pathlib.Path) -> str:
    """Returns what a source is that holds no model, for a message."""
    if full_name(str(path)) in DATASETS or str(path).startswith(("folder:", "csv:", "tfds:")):
        return "a data set, in the model's place: --dataset names it"
    if not path.exists():
        return "which does not exist"
    if (path / "config.json").is_file():
        step = max(steps(path / "checkpoints"), default=0)
        return f"a run unfinished at step {step:,}: the same command resumes it"
    if path.is_dir():
        return "a folder without model.keras"
    return "an image" if path.suffix.lower() in EXTENSIONS else "a file of another kind"


def read_run_config(file: str | os.PathLike) -> dict[str, Any]:
    """Returns the `config.json` of a run as nested dicts; keys of other versions stay in it.

    Raises ValueError if it is not JSON, or a key has a value of the wrong type.
    """
    try:
        config = json.loads(any_path(file).read_text(encoding="utf-8"))
        wrong = schema.damage(config)
        if not wrong and not fingerprint.is_description(config.get("data")):
            wrong = "data, what the run was trained on, is missing or incomplete"
    except (ValueError, RecursionError) as error:
        wrong = str(error)
    if wrong:
        raise ValueError(
            f"Expected the config of a run. {file} is damaged: {wrong}. Restore it, or use another "
            "directory."
        )
    return config


def runs_behind(source: str | os.PathLike) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (name, `config.json`) of the run that a source is, and of those that it began from.

    Nothing for what is neither a run directory nor a `.keras` file in one, such as a published
    name; a warning names what a run began from that is gone, or another now. Raises as
    `read_run_config`.
    """
    name, seen, digest = str(source), [], ""
    while name and name not in seen:
        seen.append(name)
        if digest and digest != fingerprint.digest_of_checkpoint(name):
            said = "It cannot be told what trained %s, from which %s began: it is gone, or another."
            logger.warning(said, *reversed(seen[-2:]))
            return
        path = any_path(name)
        folder = path.parent if path.suffix == ".keras" else path
        if not all((folder / file).is_file() for file in ("config.json", "metrics.csv")):
            return
        config = read_run_config(folder / "config.json")
        yield name, config
        # A published name has no digest.
        name, digest = config.get("checkpoint", ""), config["data"].get("checkpoint", "")


def _saved_model(path):
    """Returns the class and the arguments of the model in a `.keras` file, which is not built."""
    expected = "Expected a .keras file, which is a zip archive with a config.json"
    failure = f"{expected}. {path} is damaged or of another kind"
    with damage_named(failure, "Save the model again, with model.save()."):
        saved = saved_config(path)
        return saved.get("registered_name") or saved.get("class_name"), dict(saved["config"])


def saved_arguments(source: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the arguments of a run's or `.keras` file's model, which is not built.

    They are those of `keras_vit.VisionTransformer`, or with a `name` of `keras_vit.create_model`;
    None if `source` is neither. Raises ValueError if there is no such `.keras` file, or it holds a
    model of another class.
    """
    path = any_path(source)

    def read():
        if (path / "config.json").is_file():
            arguments = read_run_config(path / "config.json")["model"]
            return {key: arguments[key] for key in arguments if key not in schema.NOT_OF_MODEL}
        if path.suffix != ".keras":
            return None
        if not path.is_file():
            raise ValueError(f"Expected a .keras file. There is nothing at {path}.")
        kind, arguments = _saved_model(path)
        if kind != "keras_vit>VisionTransformer":
            raise ValueError(
                f"Expected a saved keras_vit.VisionTransformer. Received: {path}, a {kind}."
            )
        return {key: value for key, value in arguments.items() if key not in _KERAS_KEYS}

    return read_path(path, read)


def image_size_of(shape: Sequence[int | None]) -> tuple[int, int]:
    """Returns (height, width) of the shape of a batch of images; 224 where any will do."""
    _, height, width, _ = shape
    return height or 224, width or 224


def resizing(image_size: tuple[int, int], image_range: tuple[float, float] = KERAS_RANGE) -> str:
    """Returns the operations that make images of (height, width) and a range, all of each."""
    (height, width), (low, high) = image_size, image_range
    return f"decode|resize([{height},{width}])|value_range({low:g},{high:g})"
