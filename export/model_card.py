"""The texts that publish an artifact: TF-Hub's documentation page and Kaggle's metadata."""

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import keras

import keras_vit
from export.errors import ExportError
from export.interface import exported_operations
from export.portable_model import image_size, num_classes
from export.verification.report import Report
from training.io.atomic import write_text

LICENSES = {"apache-2.0": "Apache 2.0", "mit": "MIT", "cc-by-4.0": "Attribution 4.0 International"}
CLASSES_SHOWN = 20
OVERVIEW = {
    "logits": "Classifies images into {classes} classes.",
    "representation": "Turns images into feature vectors of {width} numbers.",
}


@dataclasses.dataclass(frozen=True)
class Handle:
    """A name under which TF-Hub serves a module: publisher, model and version."""

    publisher: str
    model: str
    version: int

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Returns the handle that "publisher/model/version" spells."""
        match = re.fullmatch(r"([a-z0-9_-]+)/([a-z0-9_/-]+)/([1-9][0-9]*)", text)
        if not match:
            raise ExportError(
                "Expected a handle PUBLISHER/MODEL/VERSION of small letters, digits, - and _, "
                f"such as me/vit-b16/1. Received: {text!r}"
            )
        return cls(match[1], match[2], int(match[3]))

    @property
    def slug(self) -> str:
        """The model's name as Kaggle spells it."""
        return re.sub(r"[/_]+", "-", self.model)

    def __str__(self) -> str:
        return f"{self.publisher}/{self.model}/{self.version}"


def write_card(
    model: keras.Model,
    report: Report,
    handle: Handle,
    directory: str | os.PathLike,
    *,
    license: str = "apache-2.0",
    config: Mapping[str, Any] | None = None,
) -> list[pathlib.Path]:
    """Writes what publishing an artifact needs besides the artifact.

    Args:
        model: the model that it came from.
        report: of the artifact; every figure in the texts is its.
        handle: under which it is published.
        directory: where the files go: the page, its name the model's, and Kaggle's
            model-metadata.json and model-instance-metadata.json.
        license: key of `LICENSES`.
        config: of the run that trained the model, or None.

    Returns:
        The files.

    Raises:
        ExportError: if the artifact is not as good as the model, or the license unknown.
    """
    if not report.ok:
        raise ExportError(
            f"Expected a verified artifact. {report.artifact}: {'; '.join(report.failures)}"
        )
    if license not in LICENSES:
        raise ExportError(f"Expected a license of {', '.join(LICENSES)}. Received: {license!r}")
    directory = pathlib.Path(directory)
    page = module_page(model, report, handle, license, config or {})
    texts = {
        f"{handle.slug}.md": page,
        "model-metadata.json": _json(_kaggle_model(model, report, handle, page)),
        "model-instance-metadata.json": _json(
            _kaggle_variation(model, report, handle, license, config or {})
        ),
    }
    for name, text in texts.items():
        write_text(directory / name, text)
    return [directory / name for name in texts]


def module_page(
    model: keras.Model, report: Report, handle: Handle, license: str, config: Mapping[str, Any]
) -> str:
    """Returns TF-Hub's documentation page in markdown."""
    lite = report.kind not in ("hub", "npz")
    keys = {"asset-path": f"{handle.slug}.{'tflite' if lite else 'tar.gz'}"}
    if lite:
        keys["parent-model"] = f"{handle.publisher}/{handle.model}/{handle.version}"
    else:
        keys["task"] = "image-classification" if _classifies(report) else "image-feature-vector"
        keys["fine-tunable"] = "true"
        keys["format"] = "saved_model_2"
    if config.get("dataset"):
        keys["dataset"] = config["dataset"]
    keys["network-architecture"] = _architecture(model)
    keys["license"] = license
    sections = [
        f"# {'Lite' if lite else 'Module'} {handle}",
        _overview(model, report),
        "\n".join(f"<!-- {key}: {value} -->" for key, value in keys.items()),
        "## Model",
        _model_table(model),
        "## Inputs and outputs",
        _interface(model, report, config),
        "## Use",
        _lite_usage(handle) if lite else _hub_usage(handle, report),
    ]
    if not lite:
        sections += ["## Fine-tuning", _fine_tuning()]
    sections += ["## Verification", _verification(report)]
    return "\n\n".join(sections) + "\n"


def _classifies(report):
    return report.output == "logits"


def _architecture(model):
    if isinstance(model, keras_vit.AxialResNet):
        return "axial-resnet"
    return "vision-transformer" if "patch_size" in model.arguments else "resnet-v2"


def _overview(model, report):
    return OVERVIEW[report.output].format(classes=num_classes(model), width=_width(model))


def _width(model):
    return model.endpoints["representation"].shape[-1]


def _model_table(model):
    rows = [("parameters", f"{model.count_params():,}")]
    rows += [(name, value) for name, value in model.arguments.items() if value is not None]
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _interface(model, report, config):
    height, width = image_size(model)
    lines = [
        f"Input: RGB images, float32 with values in [0, 1], of {height} x {width} pixels "
        f"(height x width), shape (batch, {height}, {width}, 3). Other values are wrong: divide "
        "8-bit pixels by 255.",
        "A photo is turned upright as its EXIF orientation says, and becomes such an image by "
        f"`{exported_operations(model)}`.",
    ]
    if _classifies(report) and model.class_names:
        first = ", ".join(model.class_names[:CLASSES_SHOWN])
        left = len(model.class_names) - CLASSES_SHOWN
        lines.append(f"Classes: {first}{f' and {left:,} more' if left > 0 else ''}.")
    if _classifies(report):
        activation = config.get("loss", "softmax")
        lines.append(
            f"Output: logits, float32, shape (batch, {num_classes(model)}); `tf.nn.{activation}` "
            "gives probabilities. Class indices are the lines of labels.txt inside the artifact, "
            "where there is one."
        )
    else:
        lines.append(
            f"Output: feature vectors, float32, shape (batch, {_width(model)}), without dropout."
        )
    return "\n\n".join(lines)


def _hub_usage(handle, report):
    what = "logits" if _classifies(report) else "features"
    return f"""```python
module = hub.load("https://tfhub.dev/{handle}")      # or the unpacked directory
{what} = module(images)                               # images in [0, 1]
```

In Keras 2, `hub.KerasLayer(handle, trainable=True)` trains it; in Keras 3, `export.HubLayer`."""


def _lite_usage(handle):
    return f"""```python
runner = Interpreter("{handle.slug}.tflite").get_signature_runner("serving_default")
result = runner(image=image[None])                    # one image in [0, 1]
```"""


def _fine_tuning():
    from training import paper_tables

    return (
        "All variables are trainable, and dropout, where the model has it, is applied with "
        "`training=True`. The paper's setting is SGD with momentum "
        f"{paper_tables.TABLE_4_MOMENTUM:g}, batches of {paper_tables.TABLE_4_BATCH_SIZE}, "
        f"gradients clipped to norm {paper_tables.TABLE_4_CLIP_NORM:g}, no weight decay, "
        "cosine decay of the learning rate, and a new head that starts at zero."
    )


def _verification(report):
    known = [(name, text) for name, text in report.rows() if name not in ("artifact", "result")]
    lines = [f"| {name} | {text} |" for name, text in known]
    return "\n".join(
        ["Measured against the Keras model, on real images:", "", "| | |", "| --- | --- |", *lines]
    )


def _kaggle_model(model, report, handle, page):
    return {
        "ownerSlug": handle.publisher,
        "title": handle.slug,
        "slug": handle.slug,
        "subtitle": _overview(model, report)[:255],
        "isPrivate": True,
        "description": page,
        "publishTime": "",
        "provenanceSources": "",
    }


def _kaggle_variation(model, report, handle, license, config):
    lite = report.kind not in ("hub", "npz")
    variation = report.kind if lite else "classification" if _classifies(report) else "features"
    height, width = image_size(model)
    usage = (
        _lite_usage(handle).replace(f"{handle.slug}.tflite", "${PATH}")
        if lite
        else "```python\nmodule = hub.load('${PATH}')   # version ${VERSION_NUMBER}\n```"
    )
    return {
        "ownerSlug": handle.publisher,
        "modelSlug": handle.slug,
        "instanceSlug": f"{height}x{width}-{variation}",
        "framework": "tfLite" if lite else "tensorFlow2",
        "overview": _overview(model, report),
        "usage": usage,
        "licenseName": LICENSES[license],
        "fineTunable": not lite,
        "trainingData": [config["dataset"]] if config.get("dataset") else [],
        "modelInstanceType": "Unspecified",
        "baseModelInstance": "",
    }


def _json(content):
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
