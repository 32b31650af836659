"""The libraries: each is a function, (case) -> (step, parameters).

`step()` runs one batch, or one update, and returns when its result has arrived. `parameters`, the
number of trained values, must agree between libraries.
"""

import dataclasses
import importlib.util
from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np

Mode = Literal["infer", "train"]
Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Each library's function, and the packages to install for it beside Keras's backend.
LIBRARIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "keras_vit": ("keras_models:ours", ()),
    "keras_vit.plain_attention": ("keras_models:plain_attention", ()),
    "keras_vit.remat": ("keras_models:remat", ()),
    "keras_vit.trainer": ("keras_models:trainer", ()),
    "keras_vit.taught": ("keras_models:taught", ()),
    "keras_hub": ("keras_models:keras_hub", ("keras_hub",)),
    "timm": ("timm:prepare", ("torch", "timm")),
    "timm.max_autotune": ("timm:max_autotune", ("torch", "timm")),
    "jax": ("jax:prepare", ("jax", "flax", "optax")),
}
INSTALL = "Install the other libraries with: pip install 'keras-vit-16x16[bench]'"
# Every library trains with the same optimizer, SGD with momentum.
LEARNING_RATE = 1e-3
MOMENTUM = 0.9


def missing(packages: Iterable[str]) -> list[str]:
    """Returns those of the packages that are not installed, sorted."""
    return sorted(name for name in {*packages} if importlib.util.find_spec(name) is None)


@dataclasses.dataclass(frozen=True)
class Case:
    """One library's task, complete in itself so that it can travel to a process.

    Inference in bfloat16 keeps the weights in bfloat16, training in float32.
    """

    library: str  # key of `LIBRARIES`
    arguments: dict[str, Any]  # of `keras_vit.VisionTransformer`
    mode: Mode = "infer"  # images to logits; "train" is one step of SGD with momentum
    batch_size: int = 8
    precision: Precision = "float32"
    compiled: bool = False  # by XLA, of PyTorch by `torch.compile`

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, 3)."""
        size = self.arguments["image_size"]
        return size, size, 3

    def images(self) -> np.ndarray:
        """Returns (batch, height, width, 3) float32 noise in [-1, 1], the same every time."""
        rng = np.random.default_rng(0)
        return rng.uniform(-1, 1, (self.batch_size, *self.image_shape)).astype("float32")

    def labels(self) -> np.ndarray:
        """Returns (batch,) int32 classes, the same every time."""
        rng = np.random.default_rng(1)
        return rng.integers(0, self.arguments["num_classes"], self.batch_size).astype("int32")
