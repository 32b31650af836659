"""Models by name."""

import fnmatch
import os
from typing import Any

import keras

from keras_vit import models, variants
from keras_vit.checkpoints import load_weights
from keras_vit.checkpoints.library_folder import model_of_folder
from keras_vit.checkpoints.model_source import Kind, model_source
from keras_vit.type_hints import ImageSize


def list_models(filter: str = "*") -> list[str]:
    """Returns the names that `create_model` knows, timm's for the same models among them.

    ViTs of the sizes in `keras_vit.variants.SIZES` have any patch size besides.

    Args:
        filter: pattern of `fnmatch`, "ViT-B/*" for example.

    Examples:
        >>> keras_vit.list_models("*dinov2*")
    """
    return fnmatch.filter(variants.EVERY_NAME, filter)


def create_model(
    name: str | os.PathLike,
    num_classes: int | str | None = "own",
    image_size: ImageSize | None = None,
    weights: str | os.PathLike | None = None,
    **overrides: Any,
) -> keras.Model:
    """Builds a model of the paper by its name, or the one of a folder of Hugging Face or timm.

    Args:
        name: one of `keras_vit.list_models()`, timm's names of the same models among
            them, or "ViT-SIZE/PATCH" with any patch size. Or a folder with config.json and
            model.safetensors, in one file or in shards, or hf://USER/NAME, which may end with
            @REVISION: that model with its weights, class names and preparation of photos.
        num_classes: int, None for the representation alone, or "own": the classes of a folder, of a
            name ImageNet's 1,000. Another number than a folder's makes a new head.
        image_size: int or (height, width), in pixels; None for that of the folder or of timm's name
            ("deit_base_patch16_384"), or else 224.
        weights: None for the original's random initialization, or the path or published name of a
            checkpoint, "augreg/B_16" for example: see `keras_vit.list_weights` and
            `keras_vit.checkpoints.load_weights`. A head of another size is left as initialized.
        **overrides: further constructor arguments of the model's class.

    Returns:
        A `VisionTransformer`, `ResNetV2` or `AxialResNet`.

    Raises:
        ValueError: if the name is not known or an argument is out of its range; a `CheckpointError`
            if a folder is damaged, of another kind of model, or contradicts itself.
        DownloadError: if hf://USER/NAME cannot be had.
        TypeError: if the model's class has no such argument.

    Examples:
        >>> model = keras_vit.create_model("ViT-B/16", num_classes=10, image_size=384)
        >>> model = keras_vit.create_model("folder/of/save_pretrained")
    """
    name = name if isinstance(name, os.PathLike) else str(name)  # errors say what was received
    source = model_source(name)
    if source.kind in (Kind.LIBRARY_FOLDER, Kind.HUGGING_FACE):
        if weights is not None:
            raise ValueError(f"Expected weights=None for {name}, which has its own weights.")
        return model_of_folder(name, num_classes, image_size, overrides)
    if source.path.is_dir() and os.fspath(name) not in variants.EVERY_NAME:
        raise ValueError(
            "Expected a model's name, or a folder with config.json and model.safetensors. Received:"
            f" {name}, {source.kind.value}. Load a run with keras.saving.load_model."
        )
    name, num_classes = os.fspath(name), 1000 if num_classes == "own" else num_classes
    class_name, arguments = variants.arguments_of(name)
    made = getattr(models, class_name)
    own_size = arguments.pop("image_size", 224)
    image_size = own_size if image_size is None else image_size
    model_name = name.lower().replace("/", "_").replace("+", "_").replace("-", "_")
    arguments = {"name": model_name, **arguments, **overrides}
    model = made(num_classes=num_classes, image_size=image_size, **arguments)
    if weights is not None:
        load_weights(model, weights)
    return model
