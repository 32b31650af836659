"""Folders of any name are trained in, resumed from and read."""

import os
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.engines.tensorflow.training_checkpoints import Checkpoints
from training.errors import UsageError
from training.io.locks import lock
from training.io.paths import local_path

SEED = int(os.environ.get("FUZZ_SEED", "0"))
_PARTS = [*"[]{}*?\\~%&$#@!'\";:|<> \t\n.,=+-_ab1é漢😀", "..", "gs:", "~x", "%20", "-60", "\udcff"]


def test_any_name(tmp_path, times, tally):
    for number in range(times(20)):
        rng = random.Random(f"{SEED}/paths/{number}")
        name = "".join(rng.choices(_PARTS, k=rng.randrange(1, 8)))
        if name in (".", ".."):
            continue
        if "\udcff" in name:
            with pytest.raises(UsageError, match="Expected a path in UTF-8"):
                local_path(tmp_path / name)
            tally("names of folders", "refused")
            continue
        folder = local_path(tmp_path / name)
        with lock(folder):
            for step in (1, 2, 3):
                optimizer = keras.optimizers.SGD(0.1)
                weights = tf.Variable(tf.zeros([4]))
                checkpoints = Checkpoints(folder, {"optimizer": optimizer, "weights": weights})
                assert checkpoints.restore() == (step - 1 or None), (SEED, number, name)
                np.testing.assert_array_equal(weights, np.full(4, step - 1))
                optimizer.iterations.assign(step)
                weights.assign(tf.fill([4], float(step)))
                checkpoints.save()
        tally("names of folders", "read")
