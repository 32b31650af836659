"""What a verification found, as values, rows of a table and text."""

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Report:
    """The figures of one artifact.

    Attributes:
        artifact: its path.
        kind: "hub", "npz", "onnx" or the quantization of a TFLite file; key of `THRESHOLDS`.
        runtime: what ran it, key of `export.verification.runtimes.runtime_table.RUNTIMES`.
        output: the output that was compared, "logits" or "representation".
        images: how many.
        max_error, mean_error: of the outputs, absolute.
        relative_error: root mean square of the errors, in units of the outputs' standard deviation.
        scale: the largest absolute output of the model, at least 1.
        cosine: mean over the images.
        agreement: part of the images with the same top-1 class; None without a head.
        model_accuracy, artifact_accuracy: top-1; None without labels.
        size_bytes: of the file, or of all files of the directory.
        load_seconds, first_call_seconds, peak_memory_bytes: in a process of its own.
        latency_ms: dict of threads to the median for one image.
        partitions: of XNNPACK in the graph; None if it is not a TFLite file.
        operations_outside_delegate: dict of name to count; None likewise.
        flex_operations: names; None likewise.
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
    agreement: float | None
    model_accuracy: float | None
    artifact_accuracy: float | None
    size_bytes: int
    load_seconds: float | None = None
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    latency_ms: dict[int, float] | None = None
    partitions: int | None = None
    operations_outside_delegate: dict[str, int] | None = None
    flex_operations: list[str] | None = None
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

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def rows(self) -> list[tuple[str, str]]:
        """Returns (name, text) of every value that is known, for a table."""
        # What was measured together is there together, or not at all.
        measured = vars(self)
        rows = [
            ("artifact", f"{self.artifact} ({self.kind})"),
            ("runtime", f"{self.runtime}" + (f" on {self.device}" if self.device else "")),
            ("images", f"{self.images}"),
            (f"largest error of {self.output}", f"{self.max_error:.2e}"),
            ("mean error", f"{self.mean_error:.2e}"),
            ("root mean square error / deviation", f"{self.relative_error:.4f}"),
            ("cosine", f"{self.cosine:.6f}"),
        ]
        if self.agreement is not None:
            rows.append(("top-1 agreement", f"{100 * self.agreement:.2f} %"))
        if self.model_accuracy is not None:
            rows.append(("accuracy of the model", f"{100 * self.model_accuracy:.2f} %"))
            rows.append(
                ("accuracy of the artifact", f"{100 * measured['artifact_accuracy']:.2f} %")
            )
        rows.append(("size", f"{self.size_bytes / 2**20:.2f} MiB"))
        if self.latency_ms is not None:
            rows.append(("loading", f"{1000 * measured['load_seconds']:.0f} ms"))
            rows.append(("first image", f"{1000 * measured['first_call_seconds']:.0f} ms"))
            for threads, latency in self.latency_ms.items():
                rows.append((f"one image, {threads} thread(s)", f"{latency:.2f} ms"))
            rows.append(("peak memory", f"{measured['peak_memory_bytes'] / 2**20:.0f} MiB"))
        if self.partitions is not None:
            outside = sum(measured["operations_outside_delegate"].values())
            rows.append(("XNNPACK partitions", f"{self.partitions}"))
            rows.append(("operations outside XNNPACK", f"{outside}"))
        if self.fully_delegated is not None:
            outside = "; ".join(measured["fallbacks"]) or "unknown operations"
            rows.append(("delegated", "fully" if self.fully_delegated else f"not fully: {outside}"))
        if self.device:
            half = self.float16_error
            rows.append(
                ("largest error in float16", "not computed" if half is None else f"{half:.2e}")
            )
        rows.append(("result", "good" if self.ok else "; ".join(self.failures)))
        return rows

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.rows())
