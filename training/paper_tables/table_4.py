"""Table 4: hyper-parameters of fine-tuning."""

from typing import NamedTuple


class FineTuning(NamedTuple):
    """A row of Table 4.

    Attributes:
        steps: number of updates.
        base_lrs: the rates that are swept.
        warmup_steps: of the released code (the paper states none).
    """

    steps: int
    base_lrs: tuple[float, ...]
    warmup_steps: int


_RATES = (0.001, 0.003, 0.01, 0.03)

# Fine-tuning with SGD and cosine decay, by data set.
TABLE_4 = {
    "imagenet2012": FineTuning(20_000, (0.003, 0.01, 0.03, 0.06), 500),
    "cifar100": FineTuning(10_000, _RATES, 500),
    "cifar10": FineTuning(10_000, _RATES, 500),
    "oxford_iiit_pet": FineTuning(500, _RATES, 100),
    "oxford_flowers102": FineTuning(500, _RATES, 100),
    "vtab": FineTuning(2_500, (0.01,), 500),
}
TABLE_4_BATCH_SIZE = 512
TABLE_4_IMAGE_SIZE = 384
TABLE_4_CLIP_NORM = 1.0
TABLE_4_MOMENTUM = 0.9
