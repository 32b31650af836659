"""The figures of a verified artifact, and the limits of its errors."""

import dataclasses
from typing import Any

from keras_vit.training.tasks import task_of

# Part of the pixels that may lie between two classes, where rounding decides.
_TIES = 1e-3
# Unseen classes that a report names.
_NAMED = 10
# Names of two figures by what a model classifies; others have accuracy and top-1 agreement.
_MEASURES = {"pixel": "mean IoU", "labels": "precision at 1"}
_AGREEMENTS = {"pixel": "agreement of pixels", "labels": "same likeliest class"}


@dataclasses.dataclass(frozen=True)
class Report:
    """The figures of one artifact; None for what is not known of its kind."""

    artifact: str  # its path
    # "hub", "npz", "onnx", "onnx-quantized", or the quantization of a TFLite file, of which an ONNX
    # file may have "float16"; key of `THRESHOLDS`.
    kind: str
    runtime: str  # key of `export.verification.RUNTIMES`
    output: str  # which was compared, "logits", "probabilities" or "representation"
    images: int  # how many
    max_error: float  # of the outputs, absolute, as the next
    mean_error: float
    relative_error: float  # root mean square, in units of the outputs' standard deviation
    scale: float  # the largest absolute output of the model, at least 1
    cosine: float  # mean over the images
    size_bytes: int  # of all files
    classifies: str = "image"  # or "labels", "number", "pixel"
    agreement: float | None = None  # part of the images, or pixels, with the same top-1 class
    model_accuracy: float | None = None  # see `measure`, as the next
    artifact_accuracy: float | None = None
    # (seen, all): classes of the images, by their labels or else by the model, and of the model.
    classes: tuple[int, int] | None = None
    unseen: tuple[str, ...] = ()  # names of the others, or their numbers
    load_seconds: float | None = None  # in a process of its own, as the next two
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    latency_ms: dict[int, float] | None = None  # {threads: median for one image}
    partitions: int | None = None  # of XNNPACK in the graph of a TFLite file
    operations_outside_delegate: dict[str, int] | None = None  # {name: count}
    device: str | None = None  # of an accelerator, in its own words
    fully_delegated: bool | None = None  # whether the accelerator ran the whole graph
    fallbacks: tuple[str, ...] | None = None  # operations that it did not run, each "NAME: why"
    float16_error: float | None = None  # largest, absolute, of its arithmetic in float16
    failures: tuple[str, ...] = ()  # the thresholds that were missed, in words

    @property
    def ok(self) -> bool:
        """Whether every threshold is met."""
        return not self.failures

    @property
    def measure(self) -> str:
        """Names `model_accuracy`. At 1, precision is the part whose likeliest class is right."""
        return _MEASURES.get(self.classifies, "accuracy")

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
            (
                _AGREEMENTS.get(self.classifies, "top-1 agreement"),
                _shown(percent, self.agreement, 100),
            ),
            (f"{self.measure} of the model", self._accuracy(self.model_accuracy)),
            (f"{self.measure} of the artifact", self._accuracy(self.artifact_accuracy)),
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

    def _accuracy(self, value):
        if value is None:
            return None
        margin = task_of({}, self.classifies).main.margin(value, self.images)
        return f"{100 * value:.2f} %{margin and f', 95 % interval {margin}'}"

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.rows())


def _shown(text: str, value: float | None, factor: float = 1) -> str | None:
    """Returns `text` with a value, which is None where it is not known."""
    return None if value is None else text.format(factor * value)


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """The limits of a kind of artifact."""

    max_error: float  # largest, in units of the largest output of the model, but at least 1
    cosine: float  # smallest mean cosine between the outputs for an image
    agreement: float  # smallest part of the images, or pixels, of which both name the same class
    accuracy_drop: float  # largest loss of accuracy, as a part of the images, or of mean IoU

    def missed(self, report: Report) -> list[str]:
        """Returns in words which limits a report misses."""
        error, half = report.max_error / report.scale, (report.float16_error or 0) / report.scale
        agreement = self.agreement if report.agreement is None else report.agreement
        drop = (report.model_accuracy or 0) - (report.artifact_accuracy or 0)
        limit = THRESHOLDS["float16"].max_error
        least, most_lost = self.agreement, self.accuracy_drop
        if report.classifies == "pixel":
            least, most_lost = min(least, 1 - _TIES), max(most_lost, _TIES)
        met = {
            f"largest error {error:.2e} above {self.max_error:g}": error <= self.max_error,
            f"cosine {report.cosine:.6f} below {self.cosine:g}": report.cosine >= self.cosine,
            f"agreement {agreement:.4f} below {least:g}": agreement >= least,
            f"{report.measure} drops by {drop:.4f}, more than {most_lost:g}": drop
            <= most_lost + 1e-12,
            f"largest error in float16 {half:.2e} above {limit:g}": half <= limit,
        }
        return [failure for failure, is_met in met.items() if not is_met]


# Those of a `Report.kind`; "float16" of an ONNX file too.
THRESHOLDS = {
    "hub": Thresholds(1e-5, 0.99999, 1.0, 0.0),
    "npz": Thresholds(1e-6, 0.99999, 1.0, 0.0),
    "hugging_face": Thresholds(1e-5, 0.99999, 1.0, 0.0),
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
