"""The interface of a model or exported file: the images that it takes, and what its output means.

Exported files carry it as texts, `interface.json` and `labels.txt`, which are written and read here
alone.
"""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import zipfile
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_vit.errors import damage_named, imported
from keras_vit.files.zip_archives import open_archive
from keras_vit.models.image_model import ACTIVATIONS, predicting_model
from keras_vit.name_suggestions import require_one_of
from keras_vit.photos.imagenet_classes import class_names_of
from keras_vit.photos.prepare_photos import maps_to_model_range, prepare_photo

from ..errors import UsageError
from ..io.paths import read_text

LABELS_FILE, INTERFACE_FILE = "labels.txt", "interface.json"
# The range of this package's models and of Google's checkpoints, and that of everything exported.
KERAS_RANGE, EXPORTED_RANGE = (-1, 1), (0, 1)
_MODEL_RANGE, _FILE_RANGE = "value_range(-1,1)", "value_range(0,1)"

logger = logging.getLogger("keras_vit")


@dataclasses.dataclass(frozen=True)
class Interface:
    """The images that a model or exported file takes, and what its output means."""

    image_size: tuple[int, int]  # (height, width) in pixels
    image_range: tuple[float, float] = KERAS_RANGE  # of the pixels, which are RGB
    # The operations that make such an image of a photo, see docs/data.md; "" resizes all of it.
    preprocessing: str = ""
    output: str = "logits"  # or "probabilities" or "representation"
    # "softmax" or "sigmoid", which makes probabilities of logits, or made those of the output.
    activation: str | None = None
    class_names: list[str] | None = None  # in the order of the output, where they are known
    classifies: str = "image"  # or "labels", "number", "pixel": what a row of the output is of
    thresholds: list[float] | None = None  # least probability of each class that is an answer

    def __post_init__(self) -> None:
        usual = resizing(self.image_size, self.image_range)
        object.__setattr__(self, "preprocessing", self.preprocessing or usual)

    @classmethod
    def of_model(cls, model: keras.Model, preprocessing: str | None = None) -> "Interface":
        """Returns the interface of a Keras model of images in [-1, 1].

        Photos are prepared by `preprocessing`, or by the model's own, or else resized.
        """
        inner, names = predicting_model(model), list(getattr(model, "class_names", None) or ())
        operations = preprocessing or getattr(model, "preprocessing", None) or ""
        has_head = getattr(inner, "arguments", {}).get("num_classes")
        output, activation = ("logits", inner.activation) if has_head else ("representation", None)
        rest = output, activation, names or None, getattr(inner, "classifies", "image")
        least = [*(getattr(inner, "thresholds", None) or ())] or None
        return cls(image_size(model), KERAS_RANGE, operations, *rest, least)

    @classmethod
    def of_export(
        cls,
        model: keras.Model,
        output: str,
        labels: Iterable[str] | None = None,
        activation: str | None = None,
    ) -> "Interface":
        """Returns the interface of a file that is exported of a model.

        Args:
            model: of this package.
            output: as the attribute.
            labels: the class names, one for each logit; None takes the model's, if it knows them.
            activation: "softmax" or "sigmoid"; None takes the model's.

        Raises `ValueError` if the activation is another, the labels do not fit or are not texts of
        one line, or what prepares photos makes images of another size.
        """
        _require_size(model)
        labels = _labels_of_model(labels, model, output)
        activation = activation or model.activation
        require_one_of("activation", activation, ACTIVATIONS)
        if model.preprocessing and not _known_operations(model):
            logger.warning(
                "%s prepares photos by %r, which does not end with value_range(-1, 1): what is "
                "exported resizes them instead.",
                *(model.name, model.preprocessing),
            )
        operations = exported_operations(model)
        activation = None if output == "representation" else activation
        least = [*model.thresholds] if activation and model.thresholds else None
        rest = output, activation, labels, model.classifies, least
        return cls(image_size(model), EXPORTED_RANGE, operations, *rest)

    @classmethod
    def of_file(
        cls, path: str | os.PathLike, image_size: tuple[int, int], output: str = ""
    ) -> "Interface":
        """Returns the interface of an exported file, or of another's with what can be assumed.

        `image_size` and the name of the `output` are what its graph says. Raises ValueError if the
        texts inside are damaged.
        """
        texts = interface_of(path)
        applied = texts.get("activation", "softmax")
        if output not in ("probabilities", "representation"):
            output = {"none": "probabilities", None: "representation"}.get(applied, "logits")
        inside = {"logits": applied, "probabilities": texts.get("activation_inside")}
        rest = output, inside.get(output), labels_of(path), texts.get("classifies", "image")
        rest = *rest, texts.get("thresholds")
        return cls(image_size, EXPORTED_RANGE, texts.get("preprocessing", ""), *rest)

    @property
    def applied(self) -> str | None:
        """The function from the output to probabilities, "none" if it gives them, None without."""
        return {"logits": self.activation, "probabilities": "none"}.get(self.output)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `interface.json`.

        Its keys: `image_size`, [height, width] in pixels; `image_range`, [0, 1], of RGB;
        `preprocessing`; `classifies`; `activation`, as `applied`; `activation_inside`, which made
        probabilities; `thresholds`, where there are some.
        """
        content = {
            "image_size": list(self.image_size),
            "image_range": list(self.image_range),
            "preprocessing": self.preprocessing,
            "classifies": self.classifies,
            "activation": self.applied,
        }
        if self.output == "probabilities":
            content["activation_inside"] = self.activation
        return content | ({"thresholds": self.thresholds} if self.thresholds else {})

    def texts(self) -> dict[str, str]:
        """Returns {file name: text} for an exported file; `labels.txt` has a class name a line."""
        texts = {INTERFACE_FILE: json.dumps(self.to_json(), indent=2) + "\n"}
        if self.class_names is not None:
            texts[LABELS_FILE] = "".join(f"{name}\n" for name in self.class_names)
        return texts


def image_size(model: keras.Model) -> tuple[int, int]:
    """Returns the (height, width) of a model's images in pixels; 224 where any will do."""
    _, height, width, _ = model.input_shape
    return height or 224, width or 224


def resizing(image_size: tuple[int, int], image_range: tuple[float, float] = KERAS_RANGE) -> str:
    """Returns the operations that make images of (height, width) and a range, all of each."""
    (height, width), (low, high) = image_size, image_range
    return f"decode|resize([{height},{width}])|value_range({low:g},{high:g})"


def model_operations(model: keras.Model) -> str:
    """Returns the operations that make a photo into an image of a model, in [-1, 1].

    Those of `model.preprocessing`, or else a resize to the model's size.
    """
    return _known_operations(model) or resizing(image_size(model))


def exported_operations(model: keras.Model) -> str:
    """Returns the operations that make a photo into an image of what is exported, in [0, 1]."""
    return model_operations(model).removesuffix(_MODEL_RANGE) + _FILE_RANGE


def labels_of(path: str | os.PathLike) -> list[str] | None:
    """Returns the class names inside of a module, TFLite or ONNX file, or None without any.

    Raises ValueError if they are damaged.
    """
    return _inside(pathlib.Path(path), LABELS_FILE, str.splitlines)


def interface_of(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the `interface.json` inside of a module, TFLite or ONNX file, or {}.

    Raises ValueError if it is damaged.
    """
    return _inside(pathlib.Path(path), INTERFACE_FILE, _parsed) or {}


def _inside(path, name, parse):
    """Returns the text of that name inside of an exported file, parsed, or None without one."""
    onnx = imported("onnx", "onnx", UsageError) if path.suffix == ".onnx" else None
    with damage_named(f"The texts inside of {path} are damaged"):
        if path.is_dir():
            file = path / "assets" / name
            return parse(read_text(file)) if file.is_file() else None
        if onnx:
            content = onnx.load(path, load_external_data=False)
            texts = {each.key: each.value for each in content.metadata_props}
            found = texts.get("labels" if name == LABELS_FILE else name)
            return None if found is None else parse(found)
        if zipfile.is_zipfile(path):
            with path.open("rb") as stream, open_archive(stream) as archive:
                found = name in archive.namelist()
                return parse(archive.read(name).decode("utf-8")) if found else None
        # The texts are an archive behind the model, and their names outlive its end.
        if any(each.encode() in path.read_bytes() for each in (LABELS_FILE, INTERFACE_FILE)):
            raise ValueError("the end of the file is missing")


def _parsed(text):
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("its interface.json is no object")
    if not isinstance(content.get("preprocessing", ""), str):
        raise ValueError(f"its preprocessing is {content['preprocessing']!r}")
    if content.get("classifies", "image") not in ("image", "labels", "number", "pixel"):
        raise ValueError(f"its classifies is {content['classifies']!r}")
    least = content.get("thresholds", [])
    if not isinstance(least, list) or not all(isinstance(each, int | float) for each in least):
        raise ValueError(f"its thresholds are {least!r}")
    for key in ("activation", "activation_inside"):
        if content.get(key) not in (None, "none", *ACTIVATIONS):
            raise ValueError(f"its {key} is {content[key]!r}")
    return content


def _require_size(model):
    """Raises ValueError if the model's preparation of photos makes images of another size."""
    operations = model_operations(model)
    try:
        made = prepare_photo(np.zeros((480, 640, 3), "uint8"), operations).shape[:2]
    except ValueError:  # of an operation that TensorFlow alone has
        return
    if made != image_size(model):
        raise ValueError(
            f"Expected model.preprocessing to make images of {image_size(model)}, the model's "
            f"size. Received: {operations!r}, which makes {made}."
        )


def _known_operations(model):
    """Returns `model.preprocessing`, its range in one spelling, or "" if it has another."""
    known = model.preprocessing or ""
    with contextlib.suppress(ValueError, TypeError, SyntaxError):  # operations of the user's own
        if maps_to_model_range(known):
            return known.removesuffix(known.rpartition("|")[2]) + _MODEL_RANGE
    return ""


def _labels_of_model(labels, model, output):
    """Returns `labels`, or where they are None the model's own, if it knows them."""
    expected = None if output == "representation" else model.arguments["num_classes"]
    if expected is None and labels is not None:
        raise ValueError("Expected no labels for a model without a head. Pass labels=None.")
    labels = model.class_names if labels is None and expected else labels
    return None if labels is None else list(class_names_of(labels, expected))
