"""Small models and data that several tests of evaluation use."""

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds

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


def _prepare(name, version, num_classes, sizes, data_dir):
    """Writes a data set of tiny images under the name and with the sizes of a published one."""
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (num_classes, 3))

    with tfds.core.registered.skip_registration():

        class Tiny(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(version)

            def _info(self):
                features = {
                    "image": tfds.features.Image(shape=(4, 4, 3)),
                    "label": tfds.features.ClassLabel(num_classes=num_classes),
                }
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features)
                )

            def _split_generators(self, dl_manager):
                return {split: self._generate_examples(size) for split, size in sizes.items()}

            def _generate_examples(self, size):
                for number in range(size):
                    # Few of the classes, so that a short run learns something.
                    label = number % 3
                    noise = rng.integers(-100, 101, (4, 4, 3))
                    image = np.clip(colours[label] + noise, 0, 255).astype(np.uint8)
                    yield number, {"image": image, "label": label}

    Tiny.name = name
    tfds.disable_progress_bar()
    Tiny(data_dir=data_dir).download_and_prepare()


@pytest.fixture(scope="session")
def vtab_dir(tmp_path_factory):
    """Folder with DTD and Flowers, their images replaced by 4x4 pixels."""
    data_dir = tmp_path_factory.mktemp("vtab")
    _prepare("dtd", "3.0.1", 47, {"train": 1_880, "validation": 1_880, "test": 1_880}, data_dir)
    _prepare(
        "oxford_flowers102",
        "2.1.1",
        102,
        {"train": 1_020, "validation": 1_020, "test": 6_149},
        data_dir,
    )
    return data_dir
