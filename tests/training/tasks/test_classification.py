import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.losses import build_loss
from keras_vit.training import data
from keras_vit.training.errors import UsageError
from keras_vit.training.tasks.classification.class_weights import (
    balanced,
    class_weights,
    label_counts,
)
from keras_vit.training.tasks.classification.evaluation import counted_sums
from tests.training.data.helpers import write_photos


def test_rows_of_nan_are_no_hits_padding_counts_nothing_and_a_part_of_a_label_is_one():
    logits = np.array([[np.nan, np.nan], [2, 1], [np.nan, 0]], "float32")
    labels = np.array([[1, 0], [1, 0], [1, 0]], "float32")
    loss = build_loss("softmax")
    sums = np.asarray(counted_sums(logits, labels, np.array([0, 1, 0], "float32"), loss))
    np.testing.assert_allclose(sums, [np.log1p(np.exp(-1)), 1, 1, 1], rtol=1e-5)
    sums = np.asarray(counted_sums(logits, labels, np.ones(3, "float32"), loss))
    assert np.isnan(sums[0])
    np.testing.assert_array_equal(sums[1:], [1, 1, 3])
    logits = np.tile(np.array([3, 2, 1], np.float32), (2, 1))
    parts = np.array([[0.4, 0.3, 0.3], [0.0, 0.4, 0.4]], np.float32)
    sums = counted_sums(logits, parts, np.ones(2, np.float32), build_loss("softmax"))
    np.testing.assert_array_equal(np.asarray(sums)[1:], [1, 2, 2])


def test_balanced_weights_make_classes_count_alike(tmp_path, monkeypatch):
    write_photos(tmp_path, [f"{'ab'[number // 6]}/{number}.png" for number in range(9)])
    weighed = data.open(f"folder:{tmp_path}", "train")
    assert class_weights("1, 2.5", weighed) == (1.0, 2.5) and class_weights("", weighed) is None
    assert class_weights("balanced", weighed) == (0.75, 1.5)
    # A class without images takes no part.
    assert balanced(np.array([6, 0, 3])) == (0.75, 0.0, 1.5)
    for text in ("1", "1,2,3", "1,-2", "1,nan", "1,inf", "0,0", "even", "a=1,b=2"):
        with pytest.raises(UsageError, match=r"'balanced', or 2 finite numbers.*Received: "):
            class_weights(text, weighed)

    labels = [0, 1, -1]  # Only labels of classes are counted.
    weighed = dataclasses.replace(weighed, num_examples=3)
    monkeypatch.setattr(data.Split, "read", lambda _, index: {"label": tf.gather(labels, index)})
    assert label_counts(weighed).tolist() == [1, 1]
    labels[2] = 2
    with pytest.raises(UsageError, match=r"labels below 2\. Received: 2"):
        label_counts(weighed)
