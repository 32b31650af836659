"""The learning rate over the steps of a run (Tables 3 and 4)."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor

DECAYS = ("cosine", "linear", "poly")
_POWER = 0.9  # of "poly"


@keras.saving.register_keras_serializable("keras_vit")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from rate 0, followed by a decay (Tables 3 and 4; Segmenter's is "poly").

    With `p = clip((step - warmup_steps) / (total_steps - warmup_steps), 0, 1)`:

    * cosine: `end_lr + (base_lr - end_lr) * (1 + cos(pi * p)) / 2`
    * linear: `end_lr + (base_lr - end_lr) * (1 - p)`
    * poly: `end_lr + (base_lr - end_lr) * (1 - p) ** 0.9`

    times `min(1, step / warmup_steps)`. Steps count from 0, so with a warm-up the first
    update has rate 0.

    Args:
        base_lr: float, rate at the end of the warm-up.
        total_steps: int, number of updates; the rate stays at `end_lr` afterwards.
        warmup_steps: int, length of the warm-up in updates, less than `total_steps`.
        decay: `"cosine"`, `"linear"` or `"poly"`.
        end_lr: float, rate at `total_steps`.

    Raises:
        ValueError: for an unknown decay or a warm-up that leaves no step to decay in.
    """

    def __init__(
        self,
        base_lr: float,
        total_steps: int,
        warmup_steps: int = 0,
        decay: str = "cosine",
        end_lr: float = 0.0,
    ) -> None:
        super().__init__()
        require_one_of("decay", decay, DECAYS)
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "Learning-rate schedule: expected 0 <= warmup_steps < total_steps. Received: "
                f"warmup_steps={warmup_steps}, total_steps={total_steps}. "
                "Shorten the warm-up or train for more steps."
            )
        self.base_lr, self.end_lr, self.decay = float(base_lr), float(end_lr), decay
        self.total_steps, self.warmup_steps = int(total_steps), int(warmup_steps)

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the float32 rate of update `step` (integer scalar, from 0)."""
        step = ops.cast(step, "float32")
        progress = (step - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        progress = ops.clip(progress, 0.0, 1.0)
        remaining = {
            "cosine": lambda: 0.5 * (1.0 + ops.cos(math.pi * progress)),
            "linear": lambda: 1.0 - progress,
            "poly": lambda: ops.power(1.0 - progress, _POWER),
        }[self.decay]()
        rate = self.end_lr + (self.base_lr - self.end_lr) * remaining
        if self.warmup_steps:
            rate = rate * ops.minimum(1.0, step / self.warmup_steps)
        return rate

    def get_config(self) -> dict[str, Any]:
        names = ("base_lr", "total_steps", "warmup_steps", "decay", "end_lr")
        return {name: getattr(self, name) for name in names}
