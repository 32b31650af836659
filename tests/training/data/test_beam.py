"""Data sets that Apache Beam writes, by its own runner on this machine."""

import pytest

from keras_vit.training.commands.data import main
from tests.training.data.helpers import contents, write_photos

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
