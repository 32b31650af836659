import numpy as np
import pytest
import tensorflow as tf

from training.data.preprocessing.pixels_and_labels import one_hot


def test_one_hot_of_one_class_several_and_none():
    np.testing.assert_array_equal(one_hot(4)(tf.constant(2)), [0, 0, 1, 0])
    np.testing.assert_array_equal(one_hot(4)(tf.constant([3, 1])), [0, 1, 0, 1])
    np.testing.assert_array_equal(one_hot(4)(tf.constant([1, 1])), [0, 1, 0, 0])
    np.testing.assert_array_equal(one_hot(4)(tf.zeros((0,), tf.int64)), [0, 0, 0, 0])


@pytest.mark.parametrize("label", [-1, 4, [0, 9]])
def test_labels_out_of_range_are_an_error_also_in_a_graph(label):
    encode = tf.function(lambda value: one_hot(4)(value))
    for function in (lambda value: one_hot(4)(value), encode):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"labels in 0\.\.3"):
            function(tf.constant(label))
