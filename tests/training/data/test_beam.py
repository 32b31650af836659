"""Data sets that Apache Beam writes, by its own runner on this machine."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from training.commands.data import main
from training.data import load_dataset

pytest.importorskip("apache_beam", reason="make test-cluster installs it")
pytestmark = pytest.mark.long

BEAM = ["--beam=--runner=DirectRunner", "--beam=--direct_num_workers=2"]


def contents(name, split, data_dir=None):
    dataset = load_dataset.load_dataset(name, split, data_dir=data_dir)
    return sorted((one["image"].numpy().tobytes(), int(one["label"])) for one in dataset)


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """A folder of photos of two birds, with a table of them."""
    from PIL import Image

    root = tmp_path_factory.mktemp("birds")
    rng = np.random.default_rng(0)
    rows = ["path,label"]
    for label in ("crow", "owl"):
        (root / label).mkdir()
        for number in range(10):
            pixels = rng.integers(0, 256, (12, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / label / f"{number}.jpg")
            rows.append(f"{label}/{number}.jpg,{label}")
    (root / "birds.csv").write_text("\n".join(rows) + "\n")
    return root


@pytest.mark.parametrize("source", ["folder:{}", "csv:{}/birds.csv"])
def test_photos_are_those_that_one_machine_writes(birds, source, tmp_path, capsys):
    for folder, beam in (("here", []), ("beam", BEAM)):
        options = ["--as=birds", f"--data_dir={tmp_path / folder}", "--num_shards=3", *beam]
        assert main(["prepare", source.format(birds), *options]) == 0
        assert "20 images decoded: all well" in capsys.readouterr().out
    here, beam = (
        {file.name for file in (tmp_path / folder / "birds" / "1.0.0").iterdir()}
        for folder in ("here", "beam")
    )
    assert here == beam and len([name for name in beam if "tfrecord" in name]) == 3
    expected = contents(f"folder:{birds}", "train")
    assert contents("tfds:birds", "train", tmp_path / "beam") == expected


class BeamSquares(tfds.core.GeneratorBasedBuilder):
    """Squares of one color, made by Beam."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(4, 4, 3)),
            "label": tfds.features.ClassLabel(num_classes=5),
        }
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(40), "test": self._generate_examples(10)}

    def _generate_examples(self, count):
        import apache_beam as beam

        return beam.Create(range(count)) | beam.Map(square)


def square(number):
    return number, {"image": np.full((4, 4, 3), number, np.uint8), "label": number % 5}


def test_a_builder_of_beam(tmp_path, capsys):
    assert main(["prepare", "tfds:beam_squares", f"--data_dir={tmp_path}", *BEAM]) == 0
    assert "50 images decoded: all well" in capsys.readouterr().out
    for split, count in (("train", 40), ("test", 10)):
        expected = sorted(
            (np.full((4, 4, 3), number, np.uint8).tobytes(), number % 5) for number in range(count)
        )
        assert contents("tfds:beam_squares", split, tmp_path) == expected


def test_a_runner_that_there_is_not(birds, tmp_path, capsys):
    options = ["--as=birds", f"--data_dir={tmp_path}", "--beam=--runner=NoRunner"]
    assert main(["prepare", f"folder:{birds}", *options]) == 2
    error = capsys.readouterr().err
    assert "NoRunner" in error and error.count("\n") == 1
