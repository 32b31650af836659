"""Small models and data that several tests of evaluation use."""

import keras
import numpy as np
import pytest

import keras_vit


@pytest.fixture
def vit():
    """A ViT of three classes for 16x16 images, with a head that is not zero."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=16,
        patch_size=8,
        hidden_size=16,
        mlp_dim=32,
        num_heads=2,
        num_layers=2,
        num_classes=3,
    )
    for variable in model.get_layer("head").weights:
        variable.assign(keras.random.normal(variable.shape, seed=1))
    return model


@pytest.fixture
def padded_batches():
    """Returns a function from images and label rows to padded batches with masks."""

    def batches(images, labels, batch_size):
        result = []
        for start in range(0, len(images), batch_size):
            image = images[start : start + batch_size]
            label = labels[start : start + batch_size]
            missing = batch_size - len(image)
            # Padding that would be noticed: other images, with every label.
            image = np.concatenate([image, 9 + np.zeros((missing, *images.shape[1:]), np.float32)])
            label = np.concatenate([label, np.ones((missing, labels.shape[1]), np.float32)])
            mask = np.concatenate([np.ones(batch_size - missing), np.zeros(missing)])
            result.append({"image": image, "label": label, "mask": mask.astype(np.float32)})
        return result

    return batches
