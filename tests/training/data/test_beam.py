"""Data sets that Apache Beam writes, by its own runner on this machine."""

import pytest

from keras_vit.training.commands.data import main
from tests.training.data.helpers import contents, write_photos

pytest.importorskip("apache_beam", reason="make test-cluster installs it")
pytestmark = pytest.mark.long

BEAM = ["--beam=--runner=DirectRunner", "--beam=--direct_num_workers=2"]


def test_photos_are_those_that_one_machine_writes(tmp_path, capsys):
    write_photos(tmp_path / "birds", [f"{n % 2}/{n}.jpg" for n in range(20)])
    for folder, beam in (("here", []), ("beam", BEAM)):
        options = ["--as=birds", f"--data_dir={tmp_path / folder}", "--num_shards=3", *beam]
        assert main(["prepare", f"{tmp_path}/birds", *options]) == 0
        assert "20 images decoded: all well" in capsys.readouterr().out
    here, beam = (
        {file.name for file in (tmp_path / folder / "birds" / "1.0.0").iterdir()}
        for folder in ("here", "beam")
    )
    assert here == beam and len([name for name in beam if "tfrecord" in name]) == 3
    expected = contents(f"folder:{tmp_path}/birds", "train")
    assert contents("tfds:birds", "train", tmp_path / "beam") == expected
