"""Does an artifact give what its model gives? Measured on real images, with the real consumer."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.models.image_model import ACTIVATIONS
from keras_vit.training.evaluators.exported_files import interface_of, labels_of

from ..errors import ExportError
from ..hub.archives import unpacked
from ..labels_and_interface_json import exported_operations, interface_of_model
from ..largest_activations import FLOAT16_LARGEST, largest_activations
from ..supported_models import CLASSIFIERS, check_range, image_size, portable
from ..tflite.flatbuffer_and_metadata import is_metadata
from ..web.to_web import page_settings, settings_of_page, tflite_of_page
from .runtimes import in_batches, open_artifact
from .subprocesses import measure

logger = logging.getLogger("keras_vit")
THREADS = (1, 2)
# The runtimes that `measure` measures.
_MEASURED = ("hub", "interpreter")
# These compute in float16 unless they are told otherwise.
_GPUS = ("gpu", "browser-gpu")
# Images on which signatures and endpoints of a module are compared, and the largest difference.
_SHOWN, _OTHER_WAYS = 2, 1e-4
# Unseen classes that a report names.
_NAMED = 10


@dataclasses.dataclass(frozen=True)
class Report:
    """The figures of one artifact.

    Attributes:
        artifact: its path.
        kind: "hub", "npz", "onnx", "onnx-quantized", or the quantization of a TFLite file, of
            which an ONNX file may have "float16"; key of `THRESHOLDS`.
        runtime: what ran it, key of `export.verification.RUNTIMES`.
        output: which was compared, "logits", "probabilities" or "representation".
        images: how many.
        max_error, mean_error: of the outputs, absolute.
        relative_error: root mean square of the errors, in units of the outputs' standard deviation.
        scale: the largest absolute output of the model, at least 1.
        cosine: mean over the images.
        size_bytes: of the file, or of all files of the directory.
        agreement: part of the images with the same top-1 class; None without a head.
        model_accuracy, artifact_accuracy: top-1; None without labels.
        classes: (seen, all), the classes of the images, by their labels or else by the model, and
            of the model; None without a head, or where every token has classes.
        unseen: names of the others, or their numbers; nothing is shown of them.
        load_seconds, first_call_seconds, peak_memory_bytes: in a process of its own.
        latency_ms: dict of threads to the median for one image.
        partitions: of XNNPACK in the graph; None if it is not a TFLite file.
        operations_outside_delegate: dict of name to count; None likewise.
        device: of an accelerator, in its own words; None where none ran it, as the next three.
        fully_delegated: whether the accelerator ran the whole graph.
        fallbacks: the operations that it did not run, each "NAME: why".
        float16_error: largest, absolute, of its arithmetic in float16; None also where it has none.
        failures: the thresholds that were missed, in words; empty if it is good.
    """

    artifact: str
    kind: str
    runtime: str
    output: str
    images: int
    max_error: float
    mean_error: float
    relative_error: float
    scale: float
    cosine: float
    size_bytes: int
    agreement: float | None = None
    model_accuracy: float | None = None
    artifact_accuracy: float | None = None
    classes: tuple[int, int] | None = None
    unseen: tuple[str, ...] = ()
    load_seconds: float | None = None
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    latency_ms: dict[int, float] | None = None
    partitions: int | None = None
    operations_outside_delegate: dict[str, int] | None = None
    device: str | None = None
    fully_delegated: bool | None = None
    fallbacks: tuple[str, ...] | None = None
    float16_error: float | None = None
    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every threshold is met."""
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """Returns all values and `ok` as a dict that JSON can hold."""
        return {**dataclasses.asdict(self), "failures": list(self.failures), "ok": self.ok}

    def rows(self) -> list[tuple[str, str]]:
        """Returns (name, text) of every value that is known, for a table."""
        seconds, percent = "{:.0f} ms", "{:.2f} %"
        latencies = (self.latency_ms or {}).items()
        outside = self.operations_outside_delegate
        fallbacks = "; ".join(self.fallbacks or ()) or "unknown operations"
        rows = [
            ("artifact", f"{self.artifact} ({self.kind})"),
            ("runtime", self.runtime + (f" on {self.device}" if self.device else "")),
            ("images", f"{self.images}"),
            (f"largest error of {self.output}", f"{self.max_error:.2e}"),
            ("mean error", f"{self.mean_error:.2e}"),
            ("root mean square error / deviation", f"{self.relative_error:.4f}"),
            ("cosine", f"{self.cosine:.6f}"),
            ("top-1 agreement", _shown(percent, self.agreement, 100)),
            ("accuracy of the model", _shown(percent, self.model_accuracy, 100)),
            ("accuracy of the artifact", _shown(percent, self.artifact_accuracy, 100)),
            ("size", f"{self.size_bytes / 2**20:.2f} MiB"),
            ("loading", _shown(seconds, self.load_seconds, 1000)),
            ("first image", _shown(seconds, self.first_call_seconds, 1000)),
            *((f"one image, {threads} thread(s)", f"{ms:.2f} ms") for threads, ms in latencies),
            ("peak memory", _shown("{:.0f} MiB", self.peak_memory_bytes, 2**-20)),
            ("XNNPACK partitions", _shown("{}", self.partitions)),
            ("operations outside XNNPACK", None if outside is None else f"{sum(outside.values())}"),
        ]
        if self.fully_delegated is not None:
            text = "fully" if self.fully_delegated else f"not fully: {fallbacks}"
            half = _shown("{:.2e}", self.float16_error) or "not computed"
            rows += [("delegated", text), ("largest error in float16", half)]
        if self.classes and self.unseen:
            more = ", …" if len(self.unseen) > _NAMED else ""
            named = ", ".join(self.unseen[:_NAMED]) + more
            rows.append(("classes of the images", "{} of {}".format(*self.classes)))
            rows.append(("nothing is known of", named))
        rows.append(("result", "good" if self.ok else "; ".join(self.failures)))
        return [(name, text) for name, text in rows if text is not None]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.rows())


def _shown(text: str, value: float | None, factor: float = 1) -> str | None:
    """Returns `text` with a value, which is None where it is not known."""
    return None if value is None else text.format(factor * value)


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """The limits of a kind of artifact.

    Attributes:
        max_error: largest difference of an output, in units of the largest output of the
            model, but at least 1.
        cosine: smallest mean cosine between the outputs for an image.
        agreement: smallest part of the images on which both name the same class.
        accuracy_drop: largest loss of accuracy, as a part of the images.
    """

    max_error: float
    cosine: float
    agreement: float
    accuracy_drop: float

    def missed(self, report: Report) -> list[str]:
        """Returns in words which limits a report misses."""
        error, half = report.max_error / report.scale, (report.float16_error or 0) / report.scale
        agreement = self.agreement if report.agreement is None else report.agreement
        drop = (report.model_accuracy or 0) - (report.artifact_accuracy or 0)
        limit = THRESHOLDS["float16"].max_error
        met = {
            f"largest error {error:.2e} above {self.max_error:g}": error <= self.max_error,
            f"cosine {report.cosine:.6f} below {self.cosine:g}": report.cosine >= self.cosine,
            f"agreement {agreement:.4f} below {self.agreement:g}": agreement >= self.agreement,
            f"accuracy drops by {drop:.4f}, more than {self.accuracy_drop:g}": (
                drop <= self.accuracy_drop + 1e-12
            ),
            f"largest error in float16 {half:.2e} above {limit:g}": half <= limit,
        }
        return [failure for failure, is_met in met.items() if not is_met]


# "hub", "npz", "onnx" and the quantizations of a TFLite file; "float16" of an ONNX file too.
THRESHOLDS = {
    "hub": Thresholds(1e-5, 0.99999, 1.0, 0.0),
    "npz": Thresholds(1e-6, 0.99999, 1.0, 0.0),
    "onnx": Thresholds(1e-4, 0.99999, 1.0, 0.0),
    "onnx-quantized": Thresholds(0.5, 0.99, 0.95, 0.01),
    "none": Thresholds(1e-4, 0.99999, 1.0, 0.0),
    "float16": Thresholds(2e-2, 0.9999, 0.99, 0.005),
    "dynamic": Thresholds(0.5, 0.99, 0.95, 0.01),
    "int8": Thresholds(0.5, 0.99, 0.95, 0.01),
    "int8-full": Thresholds(1.0, 0.9, 0.75, 0.05),
    "int16x8": Thresholds(0.3, 0.99, 0.95, 0.01),
    "int8-int16": Thresholds(0.5, 0.99, 0.95, 0.01),
}


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
            official .npz checkpoint, an .onnx file, or a web page, whose .tflite file is run.
        images: (n, height, width, 3) float32 RGB in [0, 1], of the model's size.
        labels: (n,) int classes, or (n, classes), positive at each label of the image, in the
            model's order, to compare accuracies, or None. An image without any label is not
            counted.
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
        ValueError: if the texts inside of it are damaged.
        RuntimeMissing: if the runtime is not on this machine.
    """
    original, model = model, portable(model)
    images = _checked_images(images, image_size(model))
    with unpacked(path) as module, tflite_of_page(module) as usable:
        name, artifact = open_artifact(usable, model, runtime)
        require_image_size(path, artifact.image_size, model)
        if artifact.takes_bytes:
            images = np.rint(255 * images).astype("float32") / 255
        result, delegation = artifact.run(images)
        whole = isinstance(original, CLASSIFIERS) and original.compute_dtype == "float32"
        graph = _graph(original if whole else model, artifact)
        reference = in_batches(lambda batch: graph(batch * 2 - 1, training=False), images)
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
            output=artifact.output,
            images=len(images),
            size_bytes=_size(pathlib.Path(path)),
            **_compare(artifact.output, reference, result, labels, model.class_names),
            **_accelerator(delegation, reference),
            **(_costs(usable, image_size(model)) if costs and name in _MEASURED else {}),
        )
        failures = (thresholds or THRESHOLDS[artifact.kind]).missed(report)
        if artifact.other_ways:
            limit = max(_OTHER_WAYS, (thresholds or THRESHOLDS[artifact.kind]).max_error)
            failures += [
                f"its {way} differs by {error:.2e} from the model, more than {limit:g}"
                for way, error in artifact.other_ways(images[:_SHOWN]).items()
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
def _compare(output, reference, result, labels, names):
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
    if output != "representation":
        ours, theirs = (_classes(output, each) for each in (reference, result))
        values["agreement"] = float((ours == theirs).mean())
        # Tokens have no labels.
        if reference.ndim == 2:
            count = max(2, reference.shape[-1])
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
        return (rows[:, 0] > (0.5 if output == "probabilities" else 0)).astype(int)
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
    if artifact.kind != "npz":
        names, labels = list(model.class_names or ()), labels_of(path) or []
        if _is_reordered(names, labels):
            wrong.append("its labels.txt has the model's classes in another order")
        elif names and not labels and artifact.output != "representation":
            wrong.append("it has no labels.txt, the model has names of classes")
        elif labels and len(labels) != model.arguments["num_classes"]:
            classes = model.arguments["num_classes"]
            wrong.append(f"it has {len(labels)} labels, the model {classes} classes")
        interface = interface_of(path)
        made = model.activation
        if artifact.output == "probabilities":
            made = artifact.activation or made
        expected = {"activation_inside": None} | interface_of_model(model, made, artifact.output)
        if not interface:
            wrong.append("it has no interface.json, which says how to prepare photos")
        for key, value in expected.items() if interface else ():
            if (found := interface.get(key)) != value:
                wrong.append(f"its {key} is {found!r}, the model's {value!r}")
        operations = interface.get("preprocessing", exported_operations(model))
        described = operations, artifact.output, bool(labels)
        has_metadata = artifact.metadata and is_metadata(artifact.metadata, *described)
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
    settings, interface = settings_of_page(path), interface_of(file)
    if not settings or not interface:
        return []
    return [
        f"the page's {name} is {settings.get(name)!r}, its file's {value!r}"
        for name, value in page_settings(model, interface, labels_of(file)).items()
        if settings.get(name) != value
    ]


def _size(path):
    files = (
        path,
        pathlib.Path(f"{path}.data"),
        *path.rglob("*"),
    )  # large ONNX files have weights there
    return sum(each.stat().st_size for each in files if each.is_file())
