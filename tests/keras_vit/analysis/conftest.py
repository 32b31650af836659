import functools

import pytest


@pytest.fixture
def make_model(make_vit):
    """Returns a function that builds a small model of rectangular images with random weights."""
    return functools.partial(make_vit, image_size=(16, 24), num_layers=3)


@pytest.fixture
def images(random_images):
    """A batch of three rectangular images, (3, 16, 24, 3) in [-1, 1]."""
    return random_images(3, 16, 24)
