"""Which evaluators a config asks for, and what the trainer sees of them."""

import numpy as np
import pytest

from keras_vit.training import data
from keras_vit.training.config import schema
from keras_vit.training.data.opened_dataset import RunData
from keras_vit.training.evaluators.base import create_evaluators
from keras_vit.training.recipes.losses import build_loss


class Engine:
    """Sums over a split of one batch, with the identity as the model."""

    def __init__(self, batch):
        self.batch = batch

    def make_split_sums(self, batch_sums, make_dataset, prepare_images=None):
        return lambda: np.asarray(batch_sums(self.batch["image"], self.batch), np.float64)


def config(**changes):
    return schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 3, **changes})


def created(config, batch, run_data):
    return create_evaluators(config, Engine(batch), build_loss("softmax"), run_data)


def test_none_is_asked_for():
    assert created(config(), {}, None) == []


def test_each_names_what_it_yields(data_dir):
    batch = {
        "image": np.array([[2, 1, 0], [0, 1, 2], [5, 0, 0], [9, 9, 9]], np.float32),
        "label": np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]], np.float32),
        "mask": np.array([1, 1, 1, 0], np.float32),
    }
    wanted = config(
        eval_split="test",
        eval_every_steps=7,
        train_preprocess="decode|value_range(-1,1)",
        eval_preprocess="decode|value_range(-1,1)",
        data_dir=data_dir,
        few_shot={"datasets": "digits", "shots": (1, 5), "every_steps": 2},
    )
    dataset = data.open_dataset("digits", data_dir)
    classification, few_shot = created(wanted, batch, RunData(wanted, dataset))
    assert few_shot.tasks[0].train is dataset.split("train")
    assert (classification.every_steps, few_shot.every_steps) == (7, 2)
    assert (classification.distributed, few_shot.distributed) == (True, False)
    assert few_shot.names == ("few_shot/digits_1", "few_shot/digits_5")
    values = dict(classification.run(None))
    assert tuple(values) == classification.names
    # The third image has no label, the fourth pads the batch.
    assert (values["eval_count"], values["eval_top1"], values["eval_top5"]) == (2, 0.5, 1.0)
    log_sum = np.log(np.exp([2.0, 1.0, 0.0]).sum())
    assert values["eval_loss"] == pytest.approx(log_sum - (2 + 1) / 2, rel=1e-6)
