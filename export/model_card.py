"""The texts that publish an artifact: TF-Hub's documentation page and Kaggle's metadata."""

import contextlib
import html
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import keras

import keras_vit
from keras_vit.export.errors import ExportError
from keras_vit.export.labels_and_interface_json import exported_operations
from keras_vit.export.supported_models import image_size, num_classes
from keras_vit.export.verification.report import Report
from keras_vit.training.io.atomic import atomic_file

LICENSES = {"apache-2.0": "Apache 2.0", "mit": "MIT", "cc-by-4.0": "Attribution 4.0 International"}
CLASSES_SHOWN = 20
OVERVIEW = {
    "logits": "Classifies images into {classes} classes.",
    "logit": "Tells whether images are of a class.",
    "representation": "Turns images into feature vectors of {width} numbers.",
}

_HUB_USE = """```python
module = hub.load("https://tfhub.dev/{handle}")      # or the unpacked directory
{result} = module(images)                               # images in [0, 1]
```

In Keras 2, `hub.KerasLayer(handle, trainable=True)` trains it; in Keras 3, `export.HubLayer`.

## Fine-tuning

"""
_LITE_USE = """```python
runner = Interpreter("{file}").get_signature_runner("serving_default")
result = runner(image=image[None])                    # one image in [0, 1]
```"""


def require_handle(text: str) -> re.Match:
    """Returns the match of "publisher/model/version", the name under which TF-Hub serves a module.

    Raises:
        ExportError: if it is no handle.
    """
    match = re.fullmatch(r"([a-z0-9_-]+)/([a-z0-9_/-]+)/[1-9][0-9]*", text)
    if not match:
        raise ExportError(
            "Expected a handle PUBLISHER/MODEL/VERSION of small letters, digits, - and _, "
            f"such as me/vit-b16/1. Received: {text!r}"
        )
    return match


def write_card(
    model: keras.Model,
    report: Report,
    handle: str,
    directory: str | os.PathLike,
    *,
    license: str = "apache-2.0",
    config: Mapping[str, Any] | None = None,
) -> list[pathlib.Path]:
    """Writes what publishing an artifact needs besides the artifact.

    Args:
        model: the model that it came from.
        report: of the artifact; every figure in the texts is its.
        handle: under which it is published, "publisher/model/version".
        directory: where the files go: the page, its name the model's, and Kaggle's
            model-metadata.json and model-instance-metadata.json.
        license: key of `LICENSES`.
        config: of the run that trained the model, or None.

    Returns:
        The files.

    Raises:
        ExportError: if the artifact is not as good as the model, the license is unknown or the
            handle none.
    """
    if not report.ok:
        raise ExportError(
            f"Expected a verified artifact. {report.artifact}: {'; '.join(report.failures)}"
        )
    if license not in LICENSES:
        raise ExportError(f"Expected a license of {', '.join(LICENSES)}. Received: {license!r}")
    card = _Card(model, report, handle, license, config or {})
    page = card.page()
    texts = {f"{card.slug}.md": page}
    for name, content in (
        ("model-metadata.json", card.kaggle_model(page)),
        ("model-instance-metadata.json", card.kaggle_variation()),
    ):
        texts[name] = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    files = [pathlib.Path(directory) / name for name in texts]
    with contextlib.ExitStack() as all_or_none:
        for file, text in zip(files, texts.values(), strict=True):
            all_or_none.enter_context(atomic_file(file)).write_text(text, encoding="utf-8")
    return files


class _Card:
    """The texts about one artifact; the arguments are those of `write_card`."""

    def __init__(self, model, report, handle, license, config):
        self.model, self.report, self.handle = model, report, handle
        self.publisher, name = require_handle(handle).groups()
        self.slug = re.sub(r"[/_]+", "-", name)  # as Kaggle spells it
        self.license, self.dataset = license, _published_name(config.get("dataset"))
        self.activation = model.activation
        self.is_lite = report.kind not in ("hub", "npz")
        self.classifies = report.output != "representation"
        self.classes = num_classes(model)
        self.width = model.endpoints["representation"].shape[-1]
        kind = "logit" if self.classes == 1 else "logits"
        overview = OVERVIEW[kind if self.classifies else "representation"]
        self.overview = overview.format(classes=self.classes, width=self.width)

    def page(self):
        """Returns TF-Hub's documentation page in markdown."""
        facts = [("parameters", f"{self.model.count_params():,}"), *self.model.arguments.items()]
        figures = [row for row in self.report.rows() if row[0] not in ("artifact", "result")]
        use = _LITE_USE.format(file=f"{self.slug}.tflite")
        if not self.is_lite:
            result = "logits" if self.classifies else "features"
            use = _HUB_USE.format(handle=self.handle, result=result) + _fine_tuning()
        sections = [
            f"# {'Lite' if self.is_lite else 'Module'} {self.handle}",
            self.overview,
            "\n".join(f"<!-- {key}: {value} -->" for key, value in self._keys()),
            "## Model",
            _table((name, value) for name, value in facts if value is not None),
            "## Inputs and outputs",
            *self._interface(),
            "## Use",
            use,
            "## Verification",
            f"Measured against the Keras model, on real images:\n\n{_table(figures)}",
        ]
        return "\n\n".join(sections) + "\n"

    def _keys(self):
        """Yields (key, value) of the comments that TF-Hub reads."""
        yield "asset-path", f"{self.slug}.{'tflite' if self.is_lite else 'tar.gz'}"
        if self.is_lite:
            yield "parent-model", self.handle
        else:
            yield "task", "image-classification" if self.classifies else "image-feature-vector"
            yield "fine-tunable", "true"
            yield "format", "saved_model_2"
        if self.dataset:
            yield "dataset", self.dataset
        yield "network-architecture", _architecture(self.model)
        yield "license", self.license

    def _interface(self):
        """Yields paragraphs about the inputs and outputs."""
        height, width = image_size(self.model)
        yield (
            f"Input: RGB images, float32 with values in [0, 1], of {height} x {width} pixels "
            f"(height x width), shape (batch, {height}, {width}, 3). Other values are wrong: "
            "divide 8-bit pixels by 255."
        )
        yield (
            "A photo is turned upright as its EXIF orientation says, and becomes such an image by "
            f"`{exported_operations(self.model)}`."
        )
        if not self.classifies:
            yield (
                f"Output: feature vectors, float32, shape (batch, {self.width}), without dropout."
            )
            return
        if names := self.model.class_names:
            left = len(names) - CLASSES_SHOWN
            more = f" and {left:,} more" if left > 0 else ""
            yield f"Classes: {', '.join(map(_as_text, names[:CLASSES_SHOWN]))}{more}."
        activation = f"; `tf.nn.{self.activation}` gives probabilities"
        yield (
            f"Output: {self.report.output}, float32, shape (batch, {self.classes})"
            f"{activation if self.report.output == 'logits' else ''}. Class indices "
            "are the lines of labels.txt inside the artifact, where there is one."
        )

    def kaggle_model(self, page):
        """Returns the content of Kaggle's model-metadata.json."""
        return {
            "ownerSlug": self.publisher,
            "title": self.slug,
            "slug": self.slug,
            "subtitle": self.overview[:255],
            "isPrivate": True,
            "description": page,
            "publishTime": "",
            "provenanceSources": "",
        }

    def kaggle_variation(self):
        """Returns the content of Kaggle's model-instance-metadata.json."""
        height, width = image_size(self.model)
        kind = "classification" if self.classifies else "features"
        usage = "```python\nmodule = hub.load('${PATH}')   # version ${VERSION_NUMBER}\n```"
        return {
            "ownerSlug": self.publisher,
            "modelSlug": self.slug,
            "instanceSlug": f"{height}x{width}-{self.report.kind if self.is_lite else kind}",
            "framework": "tfLite" if self.is_lite else "tensorFlow2",
            "overview": self.overview,
            "usage": _LITE_USE.format(file="${PATH}") if self.is_lite else usage,
            "licenseName": LICENSES[self.license],
            "fineTunable": not self.is_lite,
            "trainingData": [self.dataset] if self.dataset else [],
            "modelInstanceType": "Unspecified",
            "baseModelInstance": "",
        }


def _published_name(dataset):
    """Returns the name of a data set without the folders of the machine that trained on it."""
    kind, colon, path = (dataset or "").partition(":")
    return path.rstrip("/").rpartition("/")[2] if colon and kind != "tfds" else dataset


def _as_text(name):
    """Returns a class name that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", html.escape(name, quote=False))


def _architecture(model):
    if isinstance(model, keras_vit.AxialResNet):
        return "axial-resnet"
    return "vision-transformer" if "patch_size" in model.arguments else "resnet-v2"


def _fine_tuning():
    from keras_vit.training import paper_tables

    return (
        "All variables are trainable, and dropout, where the model has it, is applied with "
        "`training=True`. The paper's setting is SGD with momentum "
        f"{paper_tables.TABLE_4_MOMENTUM:g}, batches of {paper_tables.TABLE_4_BATCH_SIZE}, "
        f"gradients clipped to norm {paper_tables.TABLE_4_CLIP_NORM:g}, no weight decay, "
        "cosine decay of the learning rate, and a new head that starts at zero."
    )


def _table(rows):
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in rows)])
