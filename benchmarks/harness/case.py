"""What a library is asked to run."""

import dataclasses
from typing import Any

import numpy as np

MODES = ("infer", "train")
PRECISIONS = ("float32", "bfloat16")

# Every library trains with the same optimizer, SGD with momentum.
LEARNING_RATE = 1e-3
MOMENTUM = 0.9


@dataclasses.dataclass(frozen=True)
class Case:
    """One library's task, complete in itself so that it can travel to a process.

    Args:
        library: a module of `benchmarks.libraries`, or one of its functions: "MODULE.FUNCTION".
        arguments: the Vision Transformer, in `keras_vit.VisionTransformer`'s arguments.
        mode: "infer", images to logits, or "train", one step of SGD with momentum.
        batch_size: images per step.
        precision: "float32" or "bfloat16". Inference in bfloat16 keeps the weights in
            bfloat16; training keeps them in float32 and computes in bfloat16.
        compiled: whether XLA (PyTorch: `torch.compile`) compiles the step.
    """

    library: str
    arguments: dict[str, Any]
    mode: str = "infer"
    batch_size: int = 8
    precision: str = "float32"
    compiled: bool = False

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, 3)."""
        size = self.arguments["image_size"]
        return (size, size, 3) if isinstance(size, int) else (*size, 3)

    def images(self) -> np.ndarray:
        """Returns (batch, height, width, 3) float32 noise in [-1, 1], the same every time."""
        rng = np.random.default_rng(0)
        return rng.uniform(-1, 1, (self.batch_size, *self.image_shape)).astype("float32")

    def labels(self) -> np.ndarray:
        """Returns (batch,) int32 classes, the same every time."""
        rng = np.random.default_rng(1)
        return rng.integers(0, self.arguments["num_classes"], self.batch_size).astype("int32")
