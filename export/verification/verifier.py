"""Does an artefact give what its model gives? Measured on real images, with the real consumer."""

import dataclasses
import json
import pathlib

import numpy as np

from export.errors import ExportError
from export.hub.archive import unpacked
from export.image_range import check_range
from export.portable import image_size, portable
from export.verification.measure import measure
from export.verification.runtimes import BATCH, open_artefact

THREADS = (1, 2)


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """What an artefact must reach.

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


THRESHOLDS = {
    "hub": Thresholds(1e-5, 0.99999, 1.0, 0.0),
    "npz": Thresholds(1e-6, 0.99999, 1.0, 0.0),
    "none": Thresholds(1e-4, 0.99999, 1.0, 0.0),
    "float16": Thresholds(2e-2, 0.9999, 0.99, 0.005),
    "dynamic": Thresholds(0.5, 0.99, 0.95, 0.01),
    "int8": Thresholds(0.5, 0.99, 0.95, 0.01),
    "int8-full": Thresholds(1.0, 0.9, 0.75, 0.05),
}


@dataclasses.dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
        artefact: its path.
        kind: "hub", "npz" or the quantisation of a TFLite file; key of `THRESHOLDS`.
        output: the output that was compared, "logits" or "representation".
        images: how many.
        max_error, mean_error: of the outputs, absolute.
        scale: the largest absolute output of the model, at least 1.
        cosine: mean over the images.
        agreement: part of the images with the same top-1 class; None without a head.
        model_accuracy, artefact_accuracy: top-1; None without labels.
        size_bytes: of the file, or of all files of the directory.
        load_seconds, first_call_seconds, peak_memory_bytes: in a process of its own.
        latency_ms: dict of threads to the median for one image.
        partitions: of XNNPACK in the graph; None if it is not a TFLite file.
        operations_outside_delegate: dict of name to count; None likewise.
        flex_operations: names; None likewise.
        failures: the thresholds that were missed, in words; empty if it is good.
    """

    artefact: str
    kind: str
    output: str
    images: int
    max_error: float
    mean_error: float
    scale: float
    cosine: float
    agreement: float | None
    model_accuracy: float | None
    artefact_accuracy: float | None
    size_bytes: int
    load_seconds: float | None = None
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    latency_ms: dict | None = None
    partitions: int | None = None
    operations_outside_delegate: dict | None = None
    flex_operations: list | None = None
    failures: tuple = ()

    @property
    def ok(self):
        """Whether every threshold is met."""
        return not self.failures

    def to_dict(self):
        """Returns all values and `ok` as a dict that JSON can hold."""
        return {**dataclasses.asdict(self), "failures": list(self.failures), "ok": self.ok}

    def to_json(self):
        """Returns `to_dict()` as JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def rows(self):
        """Returns (name, text) of every value that is known, for a table."""
        rows = [
            ("artefact", f"{self.artefact} ({self.kind})"),
            ("images", f"{self.images}"),
            (f"largest error of {self.output}", f"{self.max_error:.2e}"),
            ("mean error", f"{self.mean_error:.2e}"),
            ("cosine", f"{self.cosine:.6f}"),
        ]
        if self.agreement is not None:
            rows.append(("top-1 agreement", f"{100 * self.agreement:.2f} %"))
        if self.model_accuracy is not None:
            rows.append(("accuracy of the model", f"{100 * self.model_accuracy:.2f} %"))
            rows.append(("accuracy of the artefact", f"{100 * self.artefact_accuracy:.2f} %"))
        rows.append(("size", f"{self.size_bytes / 2**20:.2f} MiB"))
        if self.latency_ms is not None:
            rows.append(("loading", f"{1000 * self.load_seconds:.0f} ms"))
            rows.append(("first image", f"{1000 * self.first_call_seconds:.0f} ms"))
            for threads, latency in self.latency_ms.items():
                rows.append((f"one image, {threads} thread(s)", f"{latency:.2f} ms"))
            rows.append(("peak memory", f"{self.peak_memory_bytes / 2**20:.0f} MiB"))
        if self.partitions is not None:
            outside = sum(self.operations_outside_delegate.values())
            rows.append(("XNNPACK partitions", f"{self.partitions}"))
            rows.append(("operations outside XNNPACK", f"{outside}"))
        rows.append(("result", "good" if self.ok else "; ".join(self.failures)))
        return rows

    def __str__(self):
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.rows())


def verify(model, path, images, labels=None, *, thresholds=None, costs=True):
    """Runs an artefact on images and compares it with the model that it came from.

    Args:
        model: of this package, one of `export.portable.MODELS`.
        path: directory of a TF-Hub module, a .tar.gz of one, a .tflite file or an
            official .npz checkpoint.
        images: (n, height, width, 3) float32 RGB in [0, 1], of the model's size.
        labels: (n,) int classes, to compare accuracies, or None.
        thresholds: a `Thresholds`; None takes those of `THRESHOLDS`.
        costs: bool, whether to measure loading, latency and memory in processes of
            their own.

    Returns:
        A `Report`; `report.ok` says whether the artefact is good.

    Raises:
        FileNotFoundError: if there is no artefact.
        ExportError: if it is damaged, or the images are not what the model takes.
    """
    model = portable(model)
    images = _checked_images(images, image_size(model))
    with unpacked(path) as usable:
        artefact = open_artefact(usable, model)
        result = artefact.run(images)
        reference = _reference(model, artefact.output, images)
        if result.shape != reference.shape:
            raise ExportError(
                f"Expected outputs of shape {reference.shape[1:]} for an image. Received: "
                f"{path}, which gives {result.shape[1:]}. It came from another model."
            )
        values = _compare(artefact.output, reference, result, labels)
        values.update(_costs(usable, artefact, image_size(model)) if costs else {})
        size = _size(pathlib.Path(path))
        limits = thresholds or THRESHOLDS[artefact.kind]
        failures = _failures(values, limits)
        if artefact.flex_operations:
            failures.append(f"needs Flex: {', '.join(artefact.flex_operations)}")
        if failures:
            failures.extend(_range_hint(artefact, reference, images))
    return Report(
        artefact=str(path),
        kind=artefact.kind,
        output=artefact.output,
        images=len(images),
        size_bytes=size,
        flex_operations=artefact.flex_operations,
        failures=tuple(failures),
        **values,
    )


def _checked_images(images, size):
    images = np.asarray(images, "float32")
    if images.ndim != 4 or not len(images) or images.shape[1:] != (*size, 3):
        raise ExportError(
            f"Expected images of shape (n, {size[0]}, {size[1]}, 3). Received: {images.shape}"
        )
    check_range(images)
    return images


def _reference(model, output, images):
    import keras

    if output not in model.endpoints:
        raise ExportError(
            f"Expected an artefact that gives one of {', '.join(model.endpoints)}. Received: one "
            f"that gives {output!r}."
        )
    graph = keras.Model(model.input, model.endpoints[output])
    batches = [
        keras.ops.convert_to_numpy(graph(images[i : i + BATCH] * 2 - 1, training=False))
        for i in range(0, len(images), BATCH)
    ]
    return np.concatenate(batches)


def _compare(output, reference, result, labels):
    error = np.abs(result - reference)
    flat, other = (x.reshape(len(x), -1).astype("float64") for x in (reference, result))
    norms = np.linalg.norm(flat, axis=1) * np.linalg.norm(other, axis=1)
    cosines = np.einsum("ij,ij->i", flat, other) / np.maximum(norms, 1e-30)
    cosines[(flat == other).all(axis=1)] = 1.0  # a new head gives nothing but zeros
    values = {
        "max_error": float(error.max()) if np.isfinite(result).all() else float("nan"),
        "mean_error": float(error.mean()),
        "scale": max(1.0, float(np.abs(reference).max())),
        "cosine": float(cosines.mean()),
        "agreement": None,
        "model_accuracy": None,
        "artefact_accuracy": None,
    }
    if output == "logits":
        ours, theirs = reference.argmax(-1), result.argmax(-1)
        values["agreement"] = float((ours == theirs).mean())
        if labels is not None:
            labels = np.asarray(labels)
            if labels.shape != ours.shape:
                raise ExportError(
                    f"Expected a label for each image, {ours.shape}. Received: {labels.shape}"
                )
            values["model_accuracy"] = float((ours == labels).mean())
            values["artefact_accuracy"] = float((theirs == labels).mean())
    return values


def _costs(path, artefact, size):
    if not artefact.is_measurable:
        return {}
    runs = {threads: measure(path, threads, size) for threads in THREADS}
    first = runs[THREADS[0]]
    return {
        **{k: v for k, v in first.items() if k != "latency_ms"},
        "latency_ms": {threads: run["latency_ms"] for threads, run in runs.items()},
    }


def _failures(values, limits):
    failures = []
    relative = values["max_error"] / values["scale"]
    if not relative <= limits.max_error:
        failures.append(f"largest error {relative:.2e} above {limits.max_error:g}")
    if not values["cosine"] >= limits.cosine:
        failures.append(f"cosine {values['cosine']:.6f} below {limits.cosine:g}")
    if values["agreement"] is not None and not values["agreement"] >= limits.agreement:
        failures.append(f"agreement {values['agreement']:.4f} below {limits.agreement:g}")
    if values["model_accuracy"] is not None:
        drop = values["model_accuracy"] - values["artefact_accuracy"]
        if drop > limits.accuracy_drop + 1e-12:
            failures.append(f"accuracy drops by {drop:.4f}, more than {limits.accuracy_drop:g}")
    return failures


def _range_hint(artefact, reference, images):
    """Says so if the artefact would agree on another range of pixels."""
    few = images[:4]
    before = np.abs(artefact.run(few) - reference[:4]).mean()
    for name, scaled in (("[0, 255]", few * 255), ("[-1, 1]", few * 2 - 1)):
        if np.abs(artefact.run(scaled) - reference[:4]).mean() < 0.01 * before:
            return [f"the artefact takes pixels in {name}, not in [0, 1]"]
    return []


def _size(path):
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(file.stat().st_size for file in files)
