"""Training on a data set that TFDS wrote with JPEG files in its records."""

import csv

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from training import data

SIZES = {"train": 48, "test": 20}


def _examples(size):
    rng = np.random.default_rng(size)
    colors = rng.integers(60, 196, (10, 3))
    for number in range(size):
        label = number % 10
        # Smooth, so that the loss of JPEG stays small.
        image = np.full((32, 32, 3), colors[label]) + np.linspace(-40, 40, 32)[:, None, None]
        yield number, {"image": image.astype(np.uint8), "label": label}


@pytest.fixture(scope="module")
def jpeg_dir(tmp_path_factory):
    """Folder of `tiny_jpegs`: images of 32x32 pixels in ten classes, as CIFAR-10, but JPEGs."""
    data_dir = tmp_path_factory.mktemp("jpegs")

    with tfds.core.registered.skip_registration():

        class TinyJpegs(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                features = {
                    "image": tfds.features.Image(shape=(32, 32, 3), encoding_format="jpeg"),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features)
                )

            def _split_generators(self, dl_manager):
                return {split: _examples(size) for split, size in SIZES.items()}

            def _generate_examples(self):
                raise AssertionError("not called")

    tfds.disable_progress_bar()
    TinyJpegs(data_dir=data_dir).download_and_prepare()
    return data_dir


def test_images_are_those_that_tfds_decodes(jpeg_dir):
    (file,) = (jpeg_dir / "tiny_jpegs" / "1.0.0").glob("*-test.tfrecord*")
    assert file.read_bytes().count(b"\xff\xd8\xff\xe0") == SIZES["test"]
    ours = data.load_dataset("tfds:tiny_jpegs", "test", data_dir=jpeg_dir)
    builder = tfds.builder_from_directory(jpeg_dir / "tiny_jpegs" / "1.0.0")
    theirs = builder.as_dataset("test", shuffle_files=False)
    for one, other in tf.data.Dataset.zip(ours, theirs):
        assert one["label"] == other["label"]
        difference = one["image"].numpy().astype(int) - other["image"].numpy()
        assert np.abs(difference).max() <= 2


@pytest.mark.long
def test_a_run_trains_on_jpegs(jpeg_dir, launch, train_command, tmp_path):
    process = launch(
        *train_command(
            tmp_path / "run",
            f"--config.data_dir={jpeg_dir}",
            "--config.dataset=tfds:tiny_jpegs",
            "--config.eval_split=test",
            "--config.total_steps=3",
            "--config.optimizer.warmup_steps=0",
            "--config.steps_per_call=1",
            "--config.log_every_steps=1",
        )
    )
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert (tmp_path / "run" / "model.keras").is_file()
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    assert all(np.isfinite(float(row["loss"])) for row in rows)
    assert 0 <= float(rows[-1]["eval_top1"]) <= 1
