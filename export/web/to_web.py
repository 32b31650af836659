"""A page that runs a model in the browser: nothing to install, no server that computes."""

import base64
import io
import os
import pathlib
import tempfile
from collections.abc import Iterable, Sequence

import keras
import numpy as np

from keras_vit.export.errors import ExportError
from keras_vit.export.labels_and_interface_json import exported_operations, labels_of_model
from keras_vit.export.supported_models import check_range, image_size, num_classes, portable
from keras_vit.export.tflite.to_tflite import to_tflite
from keras_vit.export.web.litert_js import VERSION, litert_js
from keras_vit.export.web.page_files import MODEL, write_page
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.photos import parsed_operations, prepare_photo
from keras_vit.type_hints import Tensor


def to_web(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    labels: Sequence[str] | None = None,
    title: str = "Image classifier",
    quantization: str = "dynamic",
    calibration: Iterable[Tensor] | None = None,
    examples: Sequence[Tensor] = (),
    activation: str | None = None,
    single_file: bool = False,
    litert_folder: str | os.PathLike | None = None,
) -> pathlib.Path:
    """Writes a page in which a model runs, on a phone or computer, with or without a network.

    Its visitor chooses or photographs an image and sees the most probable classes, how long
    they took, and where the model looks (section 4.5). Images stay on the device: the page asks
    for nothing but its own files. They are prepared as `keras_vit.predict` prepares them.

    Args:
        model: a classifier of this package, one of `export.supported_models.MODELS`.
        path: directory to write, for a server of files; with `single_file` the .html file.
        labels: class names in the order of the logits; None takes `model.class_names`.
        title: plain text at the top of the page.
        quantization: of the weights, as in `export.to_tflite`.
        calibration: images, as in `export.to_tflite`.
        examples: images (height, width, 3), uint8 or float in [0, 1], which the page offers to
            try. They become public with it.
        activation: "softmax" or "sigmoid", from logits to probabilities; None takes the model's.
        single_file: whether to write one file that opens without a server: larger, without
            threads.
        litert_folder: where LiteRT.js lies, in archives as `npm pack` names them; None fetches it
            from npm once.

    Returns:
        The path.

    Raises:
        ExportError: if the model is of another package or has no head, its images are not made
            by operations that the page has, or LiteRT.js cannot be had.
        ValueError: if an argument is out of its range.
        FileExistsError: if the directory holds something else.
        OSError: if it cannot be written.
    """
    model = portable(model)
    classes = num_classes(model)
    if classes is None:
        raise ExportError(
            "Expected a model with a head: the page shows classes. Received: one with num_classes="
            "None."
        )
    labels = labels_of_model(labels, model, "logits")
    height, width = image_size(model)
    # Axial attention and residual networks have no map of the image.
    global_attention = (
        isinstance(model, VisionTransformer) and model.arguments["attention"] == "global"
    )
    settings = {
        "operations": _operations(exported_operations(model), (height, width)),
        "image_size": [height, width],
        "labels": labels,
        "activation": activation or model.activation,
        "without_gpu": None if quantization in ("none", "float16") else _WITHOUT_GPU,
        "rollout": list(model.grid_size) if global_attention else None,
        "examples": [_png(example) for example in examples],
    }
    litert = litert_js(litert_folder)  # before the work of an export in vain
    with tempfile.TemporaryDirectory() as directory:
        file = to_tflite(
            model,
            pathlib.Path(directory) / MODEL,
            quantization=quantization,
            calibration=calibration,
            labels=labels,
            attention_rollout=global_attention,
            activation=activation,
        )
        megabytes = file.stat().st_size / 1e6
        settings["facts"] = {
            "Model": f"{model.name}, {model.count_params() / 1e6:,.1f} million parameters",
            "Images": f"{width} × {height} pixels",
            "Classes": f"{classes:,}",
            "Weights": f"{_WEIGHTS.get(quantization, quantization)}, {megabytes:.1f} MB",
            "Runtime": f"LiteRT.js {VERSION}",
        }
        return write_page(
            file,
            path,
            litert,
            settings=settings,
            title=title,
            summary=f"Tells {classes:,} classes apart, in your browser.",
            single_file=single_file,
        )


_WITHOUT_GPU = "GPUs take models whose weights are floats; this one's are integers."
_WEIGHTS = {"none": "float32", "dynamic": "int8", "int8-full": "int8"}


def _operations(text: str, size: tuple[int, int]) -> list[dict]:
    """Returns operations as page/photo.js has them, tried here on a photo."""
    photo = np.zeros((2 * size[0], 2 * size[1], 3), "uint8")
    try:
        shape = prepare_photo(photo, text).shape
    except ValueError as error:
        raise ExportError(f"The page cannot prepare images as the model wants: {error}") from error
    if shape != (*size, 3):
        raise ExportError(
            f"Expected operations that give images of shape {(*size, 3)}. Received: {text!r}, "
            f"which gives {shape}."
        )
    return [{"name": name, **arguments} for name, arguments in parsed_operations(text)]


def _png(image: Tensor) -> str:
    """Returns a PNG as a data URL."""
    from PIL import Image

    pixels = np.asarray(image)
    if pixels.dtype != np.uint8:
        check_range(pixels)
        pixels = np.rint(pixels * 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
