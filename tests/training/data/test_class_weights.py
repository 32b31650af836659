"""The weights of classes in a loss: balanced, or given."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training import data
from keras_vit.training.errors import UsageError
from tests.training.data.helpers import write_photos


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Six images of a, three of b."""
    root = tmp_path_factory.mktemp("photos")
    write_photos(root, [f"{'ab'[number // 6]}/{number}.png" for number in range(9)])
    return data.open(f"folder:{root}", "train")


def test_balanced_weights_make_classes_count_alike(source):
    assert source.class_weights("1, 2.5") == (1.0, 2.5)
    assert source.class_weights("") is None
    assert source.class_weights("balanced") == (0.75, 1.5)
    # A class without images takes no part.
    counted = types.SimpleNamespace(label_counts=lambda: np.array([6, 0, 3]))
    assert data.Split.class_weights(counted, "balanced") == (0.75, 0.0, 1.5)


def test_only_labels_of_classes_are_counted(source, monkeypatch):
    labels = [0, 1, -1]
    source = dataclasses.replace(source, num_examples=3)
    monkeypatch.setattr(data.Split, "read", lambda _, index: {"label": tf.gather(labels, index)})
    assert source.label_counts().tolist() == [1, 1]
    labels[2] = 2
    with pytest.raises(UsageError, match=r"labels below 2\. Received: 2"):
        source.label_counts()


@pytest.mark.parametrize("text", ["1", "1,2,3", "1,-2", "1,nan", "1,inf", "0,0", "even", "a=1,b=2"])
def test_other_weights_are_refused(source, text):
    with pytest.raises(UsageError, match=r"'balanced', or 2 finite numbers.*Received: "):
        source.class_weights(text)
