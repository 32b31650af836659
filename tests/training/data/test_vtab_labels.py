import numpy as np
import pytest
import tensorflow as tf

from keras_vit.training.data import vtab_labels


def both(rule, example):
    """Runs a rule eagerly and inside a graph."""
    classify = vtab_labels.rule(rule).classify
    eager = int(classify(example))
    assert int(tf.function(lambda one: classify(one))(example)) == eager
    return eager


def test_clevr():
    for objects, expected in ((3, 0), (10, 7)):
        example = {"objects": {"size": tf.zeros((objects,), tf.int64)}}
        assert both("clevr_count", example) == expected
    nearest = (7.9, 8, 8.0001, 8.5, 8.5001, 9, 9.5, 9.6, 10, 10.01, 99)
    for distance, expected in zip(nearest, (0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 5), strict=True):
        coords = tf.constant([[1.0, 1.0, 50.0], [0.5, 0.5, distance], [2.0, 2.0, 99.5]])
        assert both("clevr_distance", {"objects": {"pixel_coords": coords}}) == expected


@pytest.mark.parametrize(
    ("types", "depths", "expected"),
    [
        ([0], [8.0], 0),
        ([1], [8.001], 1),
        ([2], [20.0], 1),
        ([0], [20.01], 2),
        ([0], [-1.0], 0),
        ([0, 1], [30.0, 5.0], 0),
        ([6], [3.0], 3),  # a tram is no vehicle
        ([3, 2], [1.0, 25.0], 2),  # nor is a pedestrian, however near
        ([], [], 3),
    ],
)
def test_kitti_distance(types, depths, expected):
    location = np.zeros((len(types), 3), np.float32)
    location[:, 2] = depths
    objects = {"type": tf.constant(types, tf.int64), "location": tf.constant(location)}
    assert both("kitti_distance", {"objects": objects}) == expected


@pytest.mark.parametrize(
    ("rule", "key", "classes"),
    [
        ("dsprites_location", "label_x_position", [k // 2 for k in range(32)]),
        # Bins of three and two.
        ("dsprites_orientation", "label_orientation", [(2 * k) // 5 for k in range(40)]),
    ],
)
def test_dsprites(rule, key, classes):
    found = [both(rule, {key: tf.constant(k, tf.int64)}) for k in range(len(classes))]
    assert found == classes
