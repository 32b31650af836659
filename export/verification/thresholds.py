"""What an artifact must reach to be good."""

import dataclasses
from collections.abc import Mapping
from typing import Any


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

    def missed(self, figures: Mapping[str, Any]) -> list[str]:
        """Returns in words which limits the figures of a `Report` miss."""
        failures = []
        relative = figures["max_error"] / figures["scale"]
        if not relative <= self.max_error:
            failures.append(f"largest error {relative:.2e} above {self.max_error:g}")
        if not figures["cosine"] >= self.cosine:
            failures.append(f"cosine {figures['cosine']:.6f} below {self.cosine:g}")
        if figures["agreement"] is not None and not figures["agreement"] >= self.agreement:
            failures.append(f"agreement {figures['agreement']:.4f} below {self.agreement:g}")
        if figures["model_accuracy"] is not None:
            drop = figures["model_accuracy"] - figures["artifact_accuracy"]
            if drop > self.accuracy_drop + 1e-12:
                failures.append(f"accuracy drops by {drop:.4f}, more than {self.accuracy_drop:g}")
        return failures


# "hub", "npz", "onnx" and the quantizations of a TFLite file.
THRESHOLDS = {
    "hub": Thresholds(1e-5, 0.99999, 1.0, 0.0),
    "npz": Thresholds(1e-6, 0.99999, 1.0, 0.0),
    "onnx": Thresholds(1e-4, 0.99999, 1.0, 0.0),
    "none": Thresholds(1e-4, 0.99999, 1.0, 0.0),
    "float16": Thresholds(2e-2, 0.9999, 0.99, 0.005),
    "dynamic": Thresholds(0.5, 0.99, 0.95, 0.01),
    "int8": Thresholds(0.5, 0.99, 0.95, 0.01),
    "int8-full": Thresholds(1.0, 0.9, 0.75, 0.05),
    "int16x8": Thresholds(0.3, 0.99, 0.95, 0.01),
    "int8-int16": Thresholds(0.5, 0.99, 0.95, 0.01),
}
