"""The weights of the classes, given or from the split."""

import numpy as np
import pytest
import tensorflow as tf

from training import data
from training.errors import UsageError
from training.recipes.class_weights import class_weights


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Six images of a, three of b."""
    root = tmp_path_factory.mktemp("photos")
    image = tf.io.encode_png(np.zeros((3, 4, 3), np.uint8)).numpy()
    for name, count in (("a", 6), ("b", 3)):
        (root / name).mkdir()
        for number in range(count):
            (root / name / f"{number}.png").write_bytes(image)
    return data.open(f"folder:{root}", "train")


def test_balanced_weights_make_classes_count_alike(source):
    assert class_weights("balanced", source) == (0.75, 1.5)


@pytest.mark.long
def test_balanced_weights_of_a_prepared_data_set(data_dir):
    source = data.open("digits", "train", data_dir)
    weights = np.array(class_weights("balanced", source))
    labels = [int(source.read(tf.constant(i, tf.int64))["label"]) for i in range(1438)]
    counts = np.bincount(labels, minlength=10)
    np.testing.assert_allclose(weights * counts, np.full(10, 143.8))


def test_given_weights(source):
    assert class_weights("1, 2.5", source) == (1.0, 2.5)
    assert class_weights("", source) is None


@pytest.mark.parametrize("text", ["1", "1,2,3", "1,-2", "1,nan", "1,inf", "even", "a=1,b=2"])
def test_other_weights_are_refused(source, text):
    with pytest.raises(UsageError, match=r"'balanced', or 2 finite numbers.*Received: "):
        class_weights(text, source)
