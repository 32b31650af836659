import pytest

from keras_vit.training.recipes.schedules import WarmupDecay

COSINE = {"base_lr": 0.03, "total_steps": 20_000, "warmup_steps": 500, "decay": "cosine"}
LINEAR = {"base_lr": 8e-4, "total_steps": 517_822, "warmup_steps": 10_000, "decay": "linear"}


@pytest.mark.parametrize(
    "arguments, step, rate",
    [
        (COSINE, 0, 0.0),
        (COSINE, 1, 6e-5),
        (COSINE, 250, 0.015),
        (COSINE, 500, 0.03),
        (COSINE, 5_000, 0.0262276612),
        (COSINE, 10_250, 0.015),
        (COSINE, 20_000, 0.0),
        (COSINE, 30_000, 0.0),
        (LINEAR | {"end_lr": 1e-5}, 1, 8e-8),
        (LINEAR | {"end_lr": 1e-5}, 5_000, 4e-4),
        (LINEAR | {"end_lr": 1e-5}, 10_000, 8e-4),
        (LINEAR | {"end_lr": 1e-5}, 263_911, 4.05e-4),
        (LINEAR | {"end_lr": 1e-5}, 517_822, 1e-5),
        (LINEAR, 263_911, 4e-4),
        ({"base_lr": 0.1, "total_steps": 10}, 0, 0.1),
    ],
)
def test_rate(arguments, step, rate):
    assert float(WarmupDecay(**arguments)(step)) == pytest.approx(rate, rel=1e-6, abs=1e-9)


def test_warmup_must_leave_steps():
    with pytest.raises(ValueError, match="warmup_steps=10, total_steps=10"):
        WarmupDecay(0.1, total_steps=10, warmup_steps=10)
