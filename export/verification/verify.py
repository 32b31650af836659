"""Does an artifact give what its model gives? Measured on real images, with the real consumer."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.checkpoints.library_configs import CONFIG, json_beside, stated_head
from keras_vit.models.image_model import ACTIVATIONS
from keras_vit.training.inference.interface import (
    EXPORTED_RANGE,
    Interface,
    exported_operations,
    image_size,
    interface_of,
    labels_of,
)
from keras_vit.training.tasks.segmentation import mean_iou

from ..errors import ExportError, as_export_errors
from ..hub.tar_gz import unpacked
from ..largest_activations import FLOAT16_LARGEST, largest_activations
from ..supported_models import CLASSIFIERS, check_range, portable
from ..tflite.mediapipe_metadata import is_metadata
from ..web.to_web import page_settings, settings_of_page, tflite_of_page
from .report import THRESHOLDS, Report, Thresholds
from .runtimes import in_batches, open_artifact
from .subprocesses import measure

logger = logging.getLogger("keras_vit")
THREADS = (1, 2)
# The runtimes that `measure` measures.
_MEASURED = ("hub", "interpreter")
# These compute in float16 unless they are told otherwise.
_GPUS = ("gpu", "browser-gpu")
# Bounds the outputs that are compared: three images of 512 x 512 pixels and 150 classes.
_MOST_BYTES = 2**29
# Images on which signatures and endpoints of a module are compared, and the largest difference.
_SHOWN, _LARGEST_DIFFERENCE = 2, 1e-4


@as_export_errors()
def verify(
    model: keras.Model,
    path: str | os.PathLike,
    images: np.ndarray,
    labels: Sequence[int] | np.ndarray | None = None,
    *,
    runtime: str | None = None,
    thresholds: Thresholds | None = None,
    costs: bool = True,
) -> Report:
    """Runs an artifact on images and compares it with the model that it came from.

    Args:
        model: of this package, one of `export.supported_models.MODELS`.
        path: directory of a TF-Hub module, a .tar.gz of one, a .tflite file or an
            official .npz checkpoint, an .onnx file, a folder of Hugging Face, or a web page, whose
            .tflite file is run.
        images: (n, height, width, 3) float32 RGB in [0, 1], of the model's size.
        labels: (n,) int classes, or (n, classes), positive at each label of the image, in the
            model's order, to compare accuracies, or None. An image without any label is not
            counted. Of a model of pixels (n, height, width) int classes, negative without one.
        runtime: what runs it, key of `export.verification.RUNTIMES`:
            for a .tflite file "interpreter", LiteRT's `CompiledModel` on this processor,
            "compiled", or on the GPU, "gpu", "openvino", "mediapipe", on pixels rounded to
            bytes, and LiteRT.js in Chromium, "browser", or on the GPU, "browser-gpu". None
            takes the first that opens such a file.
        thresholds: None takes those of `THRESHOLDS`.
        costs: whether to measure loading, latency and memory in processes of
            their own.

    Returns:
        A `Report`; `report.ok` says whether the artifact is good. Outputs that are the same for
        all images, as a new head's, show nothing: a warning says so.

    Raises:
        FileNotFoundError: if there is no artifact.
        ExportError: if it is damaged, or the images or labels are not what the model takes.
        RuntimeMissing: if the runtime is not on this machine.
    """
    original, model = model, portable(model)
    images = _checked_images(images, image_size(model))
    # Outputs are held in memory, several times.
    most = max(1, _MOST_BYTES // (4 * int(np.prod(model.output_shape[1:]))))
    if len(images) > most:
        logger.warning("%d of %d images are compared, as outputs are large.", most, len(images))
        images, labels = images[:most], labels if labels is None else labels[:most]
    with unpacked(path) as module, tflite_of_page(module) as usable:
        name, artifact = open_artifact(usable, model, runtime)
        require_image_size(path, artifact.image_size, model)
        if artifact.takes_bytes:
            images = np.rint(255 * images).astype("float32") / 255
        result, delegation = artifact.run(images)
        whole = isinstance(original, CLASSIFIERS) and original.compute_dtype == "float32"
        graph = _graph(original if whole else model, artifact)
        reference = in_batches(lambda batch: graph(batch * 2 - 1, training=False), images)
        output = artifact.output
        if artifact.applied:
            output, reference = "probabilities", ACTIVATIONS[artifact.applied](reference).numpy()
        if result.shape != reference.shape:
            raise ExportError(
                f"Expected outputs of shape {reference.shape[1:]} for an image. Received: "
                f"{path}, which gives {result.shape[1:]}. It came from another model."
            )
        if not (np.ptp(reference, axis=0) if len(images) > 1 else reference).any():
            logger.warning(
                "The model gives the same %s for every image, as a new head does: nothing is "
                "shown of the other weights. Verify it when it is trained.",
                artifact.output,
            )
        report = Report(
            artifact=str(path),
            kind=artifact.kind,
            runtime=name,
            output=output,
            images=len(images),
            size_bytes=_size(pathlib.Path(path)),
            classifies=model.classifies,
            **_compare(output, reference, result, labels, model),
            **_accelerator(delegation, reference),
            **(_costs(usable, image_size(model)) if costs and name in _MEASURED else {}),
        )
        failures = (thresholds or THRESHOLDS[artifact.kind]).missed(report)
        if artifact.differences:
            limit = max(_LARGEST_DIFFERENCE, (thresholds or THRESHOLDS[artifact.kind]).max_error)
            failures += [
                f"its {call} differs by {error:.2e} from the model, more than {limit:g}"
                for call, error in artifact.differences(images[:_SHOWN]).items()
                if not error <= limit
            ]
        largest = FLOAT16_LARGEST
        if name == "onnx" and artifact.kind == "float16":
            # Its normalizations and head are in float32; what overflows in float16 is infinite.
            graph, largest = _graph(portable(original, "float16"), artifact), np.finfo("f4").max
        if artifact.kind == "float16" or name in _GPUS:
            failures += _too_large_for_float16(graph, images, largest)
        failures.extend(_other_texts(pathlib.Path(usable), model, artifact))
        failures.extend(_other_settings(path, usable, model))
    return dataclasses.replace(report, failures=tuple(failures))


def _checked_images(images, size):
    images = np.asarray(images, "float32")
    if images.ndim != 4 or not len(images) or images.shape[1:] != (*size, 3):
        raise ExportError(
            f"Expected images of shape (n, {size[0]}, {size[1]}, 3). Received: {images.shape}"
        )
    check_range(images)
    return images


def _graph(model, artifact):
    """Returns the model of images in [-1, 1] that an artifact was made of."""
    output, endpoints = artifact.output, dict(model.endpoints)
    if output == "probabilities" and "logits" in endpoints and artifact.activation in ACTIVATIONS:
        endpoints["probabilities"] = ACTIVATIONS[artifact.activation](endpoints["logits"])
    if output not in endpoints:
        raise ExportError(
            f"Expected an artifact that gives one of {', '.join(endpoints)}. Received: one "
            f"that gives {output!r}."
        )
    return keras.Model(model.input, endpoints[output], name=model.name)


def _too_large_for_float16(graph, images, limit):
    largest = largest_activations(graph, images)
    name = max(largest, key=lambda operation: largest[operation])
    if largest[name] <= limit:
        return []
    return [
        f"{name} reaches {largest[name]:.4g}, float16 ends at {FLOAT16_LARGEST:g}: export float32, "
        "and run it on the processor or in the GPU's float32"
    ]


@np.errstate(all="ignore")  # a report says whether numbers are infinite or none
def _compare(output, reference, result, labels, model):
    error = np.abs(result - reference)
    flat, other = (x.reshape(len(x), -1).astype("float64") for x in (reference, result))
    norms = np.linalg.norm(flat, axis=1) * np.linalg.norm(other, axis=1)
    cosines = np.einsum("ij,ij->i", flat, other) / np.maximum(norms, 1e-30)
    cosines[(flat == other).all(axis=1)] = 1.0  # a new head gives nothing but zeros
    values = {
        "max_error": float(error.max()) if np.isfinite(result).all() else float("nan"),
        "mean_error": float(error.mean()),
        "relative_error": float(np.sqrt(np.mean(error**2)) / max(reference.std(), 1e-30)),
        "scale": max(1.0, float(np.abs(reference).max())),
        "cosine": float(cosines.mean()),
    }
    if output != "representation" and model.classifies != "number":
        ours, theirs = (_classes(output, each) for each in (reference, result))
        values["agreement"] = float((ours == theirs).mean())
        count, names = max(2, reference.shape[-1]), model.class_names
        if model.classifies == "pixel" and labels is not None:
            maps = _checked_maps(labels, ours.shape, count)
            if (maps >= 0).any():
                found = (mean_iou(each, maps, count) for each in (ours, theirs))
                values["model_accuracy"], values["artifact_accuracy"] = found
        # Tokens have no labels.
        if reference.ndim == 2:
            rows = _label_rows(ours if labels is None else labels, len(ours), count)
            names = names if names and len(names) == count else range(count)
            seen = rows.any(0)
            values["classes"] = int(seen.sum()), count
            values["unseen"] = tuple(
                str(name) for name, s in zip(names, seen, strict=True) if not s
            )
            known, images = rows.any(1), np.arange(len(rows))
            if labels is not None and known.any():
                values["model_accuracy"] = float(rows[images, ours][known].mean())
                values["artifact_accuracy"] = float(rows[images, theirs][known].mean())
    return values


def _checked_maps(labels, shape, classes):
    labels = np.asarray(labels)
    if labels.shape != shape or labels.dtype.kind not in "ui" or labels.max() >= classes:
        raise ExportError(
            f"Expected an integer below {classes} for each pixel, {shape}, negative without a "
            f"class. Received: {labels.shape} of {labels.dtype}, up to {labels.max()}"
        )
    return labels


def _label_rows(labels, count, classes):
    """Returns labels as booleans (images, classes)."""
    labels = np.asarray(labels)
    if labels.shape == (count, classes) and labels.dtype.kind in "buif":
        return labels > 0
    if labels.shape != (count,) or labels.dtype.kind not in "ui":
        raise ExportError(
            f"Expected an integer for each image, ({count},), or a row of its classes, ({count}, "
            f"{classes}). Received: {labels.shape} of {labels.dtype}"
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise ExportError(
            f"Expected labels in 0..{classes - 1}. Received: {labels.min()}..{labels.max()}"
        )
    return np.eye(classes, dtype=bool)[labels]


def _classes(output, rows):
    """Returns the class of each row; of a single logit, whether it is of the class."""
    if rows.shape[-1] == 1:
        return (rows[..., 0] > (0.5 if output == "probabilities" else 0)).astype(int)
    return rows.argmax(-1)


def require_image_size(
    path: str | os.PathLike, taken: Sequence[int] | None, model: keras.Model
) -> None:
    """Raises `ExportError` if an artifact takes images of another (height, width) than a model."""
    size = image_size(model)
    if taken and tuple(taken) != size:
        raise ExportError(
            f"Expected an artifact for images of {size[0]} x {size[1]} pixels, as the model takes. "
            f"Received: {path}, for {taken[0]} x {taken[1]}. It came from another model."
        )


def _costs(path, size):
    costs = {threads: measure(path, threads, size) for threads in THREADS}
    latencies = {threads: found["latency_ms"] for threads, found in costs.items()}
    return {**costs[THREADS[0]], "latency_ms": latencies}


def _accelerator(found, reference):
    """Returns what an accelerator took of the graph, and the error of its float16."""
    if found is None:
        return {}
    half = found.float16
    return {
        "device": found.device,
        "fully_delegated": found.complete,
        "fallbacks": found.fallbacks,
        "float16_error": None if half is None else float(np.abs(half - reference).max()),
    }


def _other_texts(path, model, artifact):
    """Says which of the texts inside of an artifact are not the model's."""
    wrong = []
    if artifact.kind == "hugging_face":
        head = stated_head(json_beside(path / CONFIG, CONFIG) or {})
        if list(head["class_names"]) != list(model.class_names or ()):
            wrong.append("its config.json has other names of classes than the model")
        if model.activation == "sigmoid" != head["activation"] and artifact.output == "logits":
            wrong.append("its config.json does not say that an image can have several classes")
    elif artifact.kind != "npz":
        names, labels = list(model.class_names or ()), labels_of(path) or []
        if _is_reordered(names, labels):
            wrong.append("its labels.txt has the model's classes in another order")
        elif names and not labels and artifact.output != "representation":
            wrong.append("it has no labels.txt, the model has names of classes")
        elif labels and len(labels) != model.arguments["num_classes"]:
            classes = model.arguments["num_classes"]
            wrong.append(f"it has {len(labels)} labels, the model {classes} classes")
        interface, made = interface_of(path), model.activation
        if artifact.output == "probabilities":
            made = artifact.activation or made
        operations = exported_operations(model)
        size = image_size(model)
        output, of = artifact.output, model.classifies
        least = [*model.thresholds] if model.thresholds and output != "representation" else None
        expected = Interface(size, EXPORTED_RANGE, operations, output, made, labels, of, least)
        content = {"activation_inside": None, "thresholds": None} | expected.to_json()
        if not interface:
            wrong.append("it has no interface.json, which says how to prepare photos")
        for key, value in content.items() if interface else ():
            if (found := interface.get(key)) != value:
                wrong.append(f"its {key} is {found!r}, the model's {value!r}")
        operations = interface.get("preprocessing", operations)
        described = dataclasses.replace(expected, preprocessing=operations)
        has_metadata = artifact.metadata and is_metadata(artifact.metadata, described)
        is_tflite = path.is_file() and path.suffix == ".tflite"
        if is_tflite and not has_metadata:
            wrong.append("its metadata describe other images or outputs than the model's")
    if artifact.activation not in (None, model.activation):
        made = artifact.activation
        wrong.append(f"it makes probabilities by {made}, the model by {model.activation}")
    return wrong


def _is_reordered(names, labels):
    """Whether names stand in another order, also where they differ in case or spaces."""
    alike = [[name.strip().casefold() for name in each] for each in (names, labels)]
    pairs = [(names, labels)]
    if all(len(set(each)) == len(each) for each in alike):
        pairs.append(tuple(alike))
    return any(
        theirs != ours and theirs in one
        for one, other in pairs
        for ours, theirs in zip(one, other, strict=False)
    )


def _other_settings(path, file, model):
    """Says which settings of a page are not those inside of its TFLite file."""
    settings = settings_of_page(path)
    if not settings or not interface_of(file):
        return []
    interface = Interface.of_file(file, image_size(model))
    return [
        f"the page's {name} is {settings.get(name)!r}, its file's {value!r}"
        for name, value in page_settings(model, interface).items()
        if settings.get(name) != value
    ]


def _size(path):
    # Large ONNX files have weights in a second one.
    files = (path, pathlib.Path(f"{path}.data"), *path.rglob("*"))
    return sum(each.stat().st_size for each in files if each.is_file())
