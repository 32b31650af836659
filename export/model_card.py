"""The texts that publish an artifact: TF-Hub's documentation page and Kaggle's metadata."""

import contextlib
import html
import json
import os
import pathlib
import re
import types
from collections.abc import Mapping

import keras

from keras_vit.checkpoints.published_weights import DINOV3_LICENSE
from keras_vit.layers import PatchEmbedding
from keras_vit.models import AxialResNet
from keras_vit.models.inner_layers import inner_layers
from keras_vit.training import paper_tables
from keras_vit.training.inference.interface import exported_operations, image_size, labels_of
from keras_vit.training.io.atomic import atomic_file

from .errors import ExportError
from .verification.verify import Report

LICENSES = {"apache-2.0": "Apache 2.0", "mit": "MIT", "cc-by-4.0": "Attribution 4.0 International"}
LICENSES[DINOV3_LICENSE] = "Other (specified in description)"
TERMS = {
    DINOV3_LICENSE: "These weights derive from DINOv3's. Who passes them on does so under the "
    "[DINOv3 License](https://ai.meta.com/resources/models-and-libraries/dinov3-license), and "
    "encloses it."
}
CLASSES_SHOWN = 20

_HUB_USE = f"""```python
module = hub.load("https://tfhub.dev/{{handle}}")      # or the unpacked directory
{{result}} = module(images)                               # images in [0, 1]
```

In Keras 2, `hub.KerasLayer(handle, trainable=True)` trains it; in Keras 3, `export.HubLayer`.

## Fine-tuning

All variables are trainable, and dropout, where the model has it, is applied with `training=True`. \
The paper's setting is SGD with momentum {paper_tables.TABLE_4_MOMENTUM:g}, \
batches of {paper_tables.TABLE_4_BATCH_SIZE}, \
gradients clipped to norm {paper_tables.TABLE_4_CLIP_NORM:g}, no weight decay, \
cosine decay of the learning rate, and a new head that starts at zero."""
_LITE_USE = """```python
runner = Interpreter("{file}").get_signature_runner("serving_default")
result = runner(image=image[None])                    # one image in [0, 1]
```"""


def require_handle(text: str) -> re.Match:
    """Returns the match of "publisher/model/version", the name under which TF-Hub serves a module.

    Raises `ExportError` if it is no handle.
    """
    match = re.fullmatch(r"([a-z0-9_-]+)/([a-z0-9_/-]+)/[1-9][0-9]*", text)
    if not match:
        raise ExportError(
            "Expected a handle PUBLISHER/MODEL/VERSION of small letters, digits, - and _, "
            f"such as me/vit-b16/1. Received: {text!r}"
        )
    return match


def require_license(model: keras.Model, license: str | None) -> str | None:
    """Returns a license; raises `ExportError` if the model derives from weights of another."""
    own = getattr(model, "license", None)
    if own and own.lower() != str(license).lower():
        raise ExportError(
            f"Expected license={own!r}, that of the published weights which {model.name} derives "
            f"from. Received: {license!r}"
        )
    return license


def write_card(
    model: keras.Model,
    report: Report,
    handle: str,
    directory: str | os.PathLike,
    *,
    license: str,
    dataset: str = "",
    training: Mapping[str, str] = types.MappingProxyType({}),
) -> list[pathlib.Path]:
    """Writes what publishing an artifact needs besides the artifact, and returns the files.

    Args:
        model: the model that it came from.
        report: of the artifact; every figure in the texts is its.
        handle: under which it is published, "publisher/model/version".
        directory: where the files go: the page, its name the model's, and Kaggle's
            model-metadata.json and model-instance-metadata.json.
        license: key of `LICENSES`.
        dataset: that trained the model, as a config names it, or "".
        training: figures of the run by their titles, as its page shows them.

    Raises `ExportError` if the artifact is not as good as the model, the license is unknown or not
    that of weights which the model derives from, or the handle none.
    """
    if not report.ok:
        raise ExportError(
            f"Expected a verified artifact. {report.artifact}: {'; '.join(report.failures)}"
        )
    if license not in LICENSES:
        raise ExportError(f"Expected a license of {', '.join(LICENSES)}. Received: {license!r}")
    require_license(model, license)
    publisher, name = require_handle(handle).groups()
    slug = re.sub(r"[/_]+", "-", name)  # as Kaggle spells it
    is_lite, classifies = report.kind != "hub", report.output != "representation"
    kind = {"pixel": "segmentation", "number": "others"}.get(model.classifies, "classification")
    kind = kind if classifies else "features"
    height, width = image_size(model)
    overview = _overview(model, report)
    # Without the folders of the machine that trained on it.
    published, (builder, _, path) = dataset, dataset.partition(":")
    if path and builder != "tfds":
        published = path.rstrip("/").rpartition("/")[2]
    tags = {
        "asset-path": f"{slug}.{'tflite' if is_lite else 'tar.gz'}",
        "parent-model": handle if is_lite else None,
        "task": None if is_lite else f"image-{'feature-vector' if kind == 'features' else kind}",
        "fine-tunable": None if is_lite else "true",
        "format": None if is_lite else "saved_model_2",
        "dataset": published,
        "network-architecture": _architecture(model),
        "license": license,
    }
    facts = {"parameters": f"{model.count_params():,}", **model.arguments}
    figures = [row for row in report.rows() if row[0] not in ("artifact", "result")]
    result = "logits" if classifies else "features"
    sections = [
        f"# {'Lite' if is_lite else 'Module'} {handle}",
        overview,
        "\n".join(f"<!-- {key}: {value} -->" for key, value in tags.items() if value),
        "## Model",
        _table((name, value) for name, value in facts.items() if value is not None),
        *(["## License", TERMS[license]] if license in TERMS else []),
        *(["## Training", _table(training.items())] if training else []),
        "## Inputs and outputs",
        *_interface(model, report),
        "## Use",
        _LITE_USE.format(file=f"{slug}.tflite")
        if is_lite
        else _HUB_USE.format(handle=handle, result=result),
        "## Verification",
        f"Measured against the Keras model, on real images:\n\n{_table(figures)}",
    ]
    page = "\n\n".join(sections) + "\n"
    about = {
        "ownerSlug": publisher,
        "title": slug,
        "slug": slug,
        "subtitle": overview[:255],
        "isPrivate": True,
        "description": page,
        "publishTime": "",
        "provenanceSources": "",
    }
    usage = "```python\nmodule = hub.load('${PATH}')   # version ${VERSION_NUMBER}\n```"
    variation = {
        "ownerSlug": publisher,
        "modelSlug": slug,
        "instanceSlug": f"{height}x{width}-{report.kind if is_lite else kind}",
        "framework": "tfLite" if is_lite else "tensorFlow2",
        "overview": overview,
        "usage": _LITE_USE.format(file="${PATH}") if is_lite else usage,
        "licenseName": LICENSES[license],
        "fineTunable": not is_lite,
        "trainingData": [published] if published else [],
        "modelInstanceType": "Unspecified",
        "baseModelInstance": "",
    }
    texts = {
        f"{slug}.md": page,
        "model-metadata.json": json.dumps(about, indent=2, ensure_ascii=False) + "\n",
        "model-instance-metadata.json": json.dumps(variation, indent=2, ensure_ascii=False) + "\n",
    }
    files = [pathlib.Path(directory) / name for name in texts]
    with contextlib.ExitStack() as all_or_none:
        for file, text in zip(files, texts.values(), strict=True):
            all_or_none.enter_context(atomic_file(file)).write_text(text, encoding="utf-8")
    return files


def _overview(model, report):
    if report.output == "representation":
        width = model.endpoints["representation"].shape[-1]
        return f"Turns images into feature vectors of {width} numbers."
    classes = model.arguments["num_classes"]
    if model.classifies == "pixel":
        return f"Tells {classes} classes of pixels apart."
    if model.classifies == "number":
        return f"Gives {classes} numbers of images."
    if model.classifies == "labels":
        return f"Tells which of {classes} classes are on an image."
    if classes == 1:
        return "Tells whether images are of a class."
    return f"Classifies images into {classes} classes."


def _interface(model, report):
    """Yields paragraphs about the inputs and outputs."""
    height, width = image_size(model)
    yield (
        f"Input: RGB images, float32 with values in [0, 1], of {height} x {width} pixels "
        f"(height x width), shape (batch, {height}, {width}, 3). Other values are wrong: "
        "divide 8-bit pixels by 255."
    )
    yield (
        "A photo is turned upright as its EXIF orientation says, and becomes such an image by "
        f"`{exported_operations(model)}`."
    )
    if report.output == "representation":
        features = model.endpoints["representation"].shape[-1]
        yield f"Output: feature vectors, float32, shape (batch, {features}), without dropout."
        return
    if names := model.class_names or labels_of(report.artifact):
        left = len(names) - CLASSES_SHOWN
        more = f" and {left:,} more" if left > 0 else ""
        yield f"Classes: {'; '.join(map(_as_text, names[:CLASSES_SHOWN]))}{more}."
    is_number = model.classifies == "number"
    activation = "" if is_number else f"; `tf.nn.{model.activation}` gives probabilities"
    shape = ", ".join(map(str, model.output_shape[1:]))
    yield (
        f"Output: {report.output}, float32, shape (batch, {shape})"
        f"{activation if report.output == 'logits' else ''}. Class indices "
        "are the lines of labels.txt inside the artifact, where there is one."
    )


def _as_text(name):
    """Returns a class name that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", html.escape(name, quote=False))


def _architecture(model):
    if isinstance(model, AxialResNet):
        return "axial-resnet"
    # A model around one of ours has the card of the one inside.
    layers = [layer for _, layer, _ in inner_layers(model)]
    transformer = any(isinstance(each, PatchEmbedding) for each in layers)
    return "vision-transformer" if transformer else "resnet-v2"


def _table(rows):
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in rows)])
