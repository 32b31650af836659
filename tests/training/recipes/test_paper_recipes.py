import pytest

from training.recipes import tables


def test_steps():
    jft, imagenet = 303_000_000, 1_281_167
    assert tables.steps(7, jft, 4096) == 517_822
    assert tables.steps(14, jft, 4096) == 1_035_645
    assert tables.steps(300, imagenet, 4096) == 93_835
    assert tables.steps(300, imagenet * 99 // 100, 4096) == 92_897
    assert tables.steps(1, 10, 4096) == 1


def test_each_model_and_dataset_has_one_row():
    pairs = [(model, row.dataset) for row in tables.PRE_TRAINING for model in row.models]
    assert len(pairs) == len(set(pairs)) == 23


def test_row():
    row, epochs = tables.pre_training("ViT-L/16", "jft")
    assert (row.base_lr, row.schedule, row.weight_decay, epochs) == (4e-4, "linear", 0.1, 14)
    assert tables.pre_training("ViT-L/16", "jft", 7)[1] == 7


def test_missing_row():
    with pytest.raises(ValueError, match="no row for ViT-B/16 on cifar10"):
        tables.pre_training("ViT-B/16", "cifar10")
    with pytest.raises(ValueError, match="for 7 epochs"):
        tables.pre_training("ViT-B/16", "jft", 14)
