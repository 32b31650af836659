"""Opens the model of a source: a run, a `.keras` file, a checkpoint, an exported file."""

import os
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.model_source import Kind, model_source
from keras_vit.checkpoints.published_weights import published_classifier
from keras_vit.errors import damage_named
from keras_vit.model_factory import create_model
from keras_vit.models.image_model import ImageModel
from keras_vit.photos.imagenet_classes import imagenet_classes

from ..source_facts import read_run_config, saved_model, unfinished, without_model
from .exported_functions import open_exported
from .image_function import ImageFunction, KerasFunction

# Bytes that the names of its arrays alone take in a file.
_LEAST_OF_A_BLOCK = 1000


def load_model(
    source: str | os.PathLike,
    *,
    name: str | None = None,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    **arguments: Any,
) -> KerasFunction:
    """Loads a Keras model. Nothing in the file is executed.

    Args:
        source: a run directory with `model.keras`, a `.keras` file, a folder of Hugging Face or
            timm, hf://USER/NAME, the published name of a classifier of ImageNet's 1,000 classes,
            or, with `name`, a checkpoint: the path or published name of an .npz or safetensors
            file.
        name: of a checkpoint's model, such as "ViT-B/16", which the file does not say.
        num_classes: of a checkpoint's head, which must fit; None leaves out the head and
            pre-training's hidden layer.
        image_size: in pixels, for a checkpoint, whose position embeddings are resized; None is
            that of the folder, or else 224.
        **arguments: further constructor arguments of a checkpoint's model.

    Raises `FileNotFoundError` if there is no such file; `ValueError` if it is damaged, or of
    another kind, or says itself what is given.
    """
    found = model_source(source)
    classifier = None if name or found.path.exists() else published_classifier(str(source))
    if classifier:
        name, num_classes = classifier.model, len(imagenet_classes())
        image_size = image_size or classifier.image_size
        arguments = {**classifier.arguments, **arguments}
    if name is not None:
        model = create_model(name, num_classes=num_classes, image_size=image_size, **arguments)
        skip = ("head", "pre_logits") if num_classes is None else ()
        load_checkpoint(model, source, skip=skip)
        return KerasFunction(model, str(source))
    if found.kind in (Kind.LIBRARY_FOLDER, Kind.HUGGING_FACE):
        refuse_facts(source, num_classes=num_classes, **arguments)
        return KerasFunction(create_model(source, image_size=image_size), str(source))
    if found.kind is Kind.UNFINISHED_RUN:
        raise FileNotFoundError(
            f"{source} has no model.keras yet: a run writes it when it ends. It is "
            f"{unfinished(found.path)}."
        )
    if not found.is_keras:
        raise (ValueError if found.path.is_file() else FileNotFoundError)(
            "Expected a run directory with model.keras, which a run writes when it ends, a .keras "
            "file, a folder of Hugging Face or timm, or the published name of a classifier, such "
            "as augreg/B_16-imagenet2012. "
            f"Received: {source}, {without_model(source)}. A checkpoint needs the name of its "
            "model as well, such as --model=ViT-B/16."
        )
    refuse_facts(source, num_classes=num_classes, image_size=image_size, **arguments)
    run = read_run_config(found.run_config) if found.run_config else {}
    file, (_, saved) = found.file, saved_model(found.file)
    advice = "It is damaged, needs classes of another package, or holds code, which is not run."
    with damage_named(f"{file} cannot be loaded as a Keras model", advice):
        blocks, size = int(np.sum(saved.get("num_layers", 0))), file.stat().st_size
        if blocks * _LEAST_OF_A_BLOCK > size:
            raise ValueError(f"it claims {blocks} blocks, and has {size} bytes")
        model = keras.saving.load_model(file, compile=False, safe_mode=True)
    return KerasFunction(model, str(source), run=run)


def refuse_facts(source: str | os.PathLike, **facts: Any) -> None:
    """Raises ValueError if facts of a checkpoint's model are given for a file that says them."""
    if any(value is not None for value in facts.values()):
        raise ValueError(
            "Expected --model, --image_size and --num_classes for a checkpoint alone, which does "
            f"not say them. Received: {source}."
        )


def open_source(
    source: str | os.PathLike,
    *,
    layer: str | None = None,
    runtime: str | None = None,
    **checkpoint: Any,
) -> ImageFunction:
    """Opens a model from wherever `load_model` finds one, or what was exported.

    Args:
        source: of a Keras model, the directory of a TF-Hub module, which holds
            `saved_model.pb`, or a .tflite or .onnx file.
        layer: the output used as features: an endpoint or layer of a Keras model, or an attribute
            of a module. None takes `endpoints["representation"]`, or `module.feature_vector`,
            where there is one, and what the model returns otherwise.
        runtime: of a .tflite file, one of `exported_functions.RUNTIMES`; None takes the faster one.
        **checkpoint: `name`, `num_classes` and `image_size` of `load_model`.

    Raises `FileNotFoundError` if there is no such model; `ValueError` if it cannot be used, or has
    no such layer.
    """
    if runtime is not None and not str(source).endswith(".tflite"):
        raise ValueError(f"Expected a .tflite file for runtime={runtime!r}. Received: {source}")
    if exported := open_exported(source, layer=layer, runtime=runtime):
        refuse_facts(source, **checkpoint)
        return exported
    loaded = load_model(source, **checkpoint)
    require_ours(loaded)
    return KerasFunction(loaded.model, loaded.name, run=loaded.run, layer=layer)


def require_ours(source: KerasFunction) -> None:
    """Raises ValueError if the model is not of this package, which may be only a part of it.

    Others may take images of another range, and give probabilities.
    """
    if not isinstance(source.model, ImageModel):
        raise ValueError(
            f"Expected a model of keras_vit. Received: {source.name}, another model of Keras. If "
            "it calls one of ours, export it with keras-vit export hub: `predict`, `evaluate` and "
            "`few_shot` take the module. For `analyze`, save the model inside it."
        )


def untrained(source: str | os.PathLike, *, layer: str | None = None) -> KerasFunction:
    """Returns the Keras model of `source` with freshly initialized weights, for comparison."""
    model = load_model(source).model
    keras.utils.set_random_seed(0)
    fresh = type(model).from_config(model.get_config())
    return KerasFunction(fresh, "without training", layer=layer)
