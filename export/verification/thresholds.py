"""How far an artifact of each kind may be from its model."""

import dataclasses

from .report import Report

# Part of the pixels that may lie between two classes, where rounding decides.
_TIES = 1e-3


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
            f"accuracy drops by {drop:.4f}, more than {most_lost:g}": drop <= most_lost + 1e-12,
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
