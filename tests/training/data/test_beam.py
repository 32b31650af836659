"""Data sets that Apache Beam writes, by its own runner on this machine."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.training.data.helpers import contents, error_line, write_photos
from training.commands.data import main

pytest.importorskip("apache_beam", reason="make test-cluster installs it")
pytestmark = pytest.mark.long

BEAM = ["--beam=--runner=DirectRunner", "--beam=--direct_num_workers=2"]


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """A folder of photos of two birds, with a table of them."""
    root = tmp_path_factory.mktemp("birds")
    names = [f"{label}/{number}.jpg" for label in ("crow", "owl") for number in range(10)]
    write_photos(root, names)
    rows = [f"{name},{name.partition('/')[0]}" for name in names]
    (root / "birds.csv").write_text("\n".join(["path,label", *rows]) + "\n")
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
    assert "NoRunner" in error_line(capsys)
