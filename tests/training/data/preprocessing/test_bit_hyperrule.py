import pytest
import tensorflow as tf
from training.data.preprocessing.operations import bit_hyperrule

from training.data.preprocessing.operation import parse
from training.data.preprocessing.preprocess import Preprocess


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32, 32), (160, 128)),
        ((95, 96), (160, 128)),
        ((96, 96), (512, 480)),
        ((224, 224), (512, 480)),
    ],
)
def test_resolution_by_area(shape, expected):
    assert bit_hyperrule.resolution(*shape) == expected


def test_transforms_end_at_the_resolution_of_the_crop():
    image = tf.zeros((32, 32, 3), tf.uint8)
    assert Preprocess("bit_train(32, 32)")(image, (0, 0)).shape == (128, 128, 3)
    assert Preprocess("bit_eval(32, 32)")(image, (0, 0)).shape == (128, 128, 3)
    assert [op.name for op in parse("bit_train(96, 96, flip=False)")] == ["resize", "random_crop"]
