"""A folder or a table of photos as a sharded data set: the same photos, the same labels."""

import numpy as np
import pytest
from etils import epath
from PIL import Image

from training.commands.data import main
from training.data import load_dataset, prepare_dataset
from training.errors import UsageError


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 3)):
        for label in ("crow", "owl"):
            (root / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (12, 8, 3)).astype(np.uint8)
                exif = Image.Exif()
                exif[0x0112] = 6 if number == 1 else 1
                suffix = "png" if number == 2 else "jpg"
                Image.fromarray(pixels).save(root / split / label / f"{number}.{suffix}", exif=exif)
    return root


def contents(name, split, data_dir=None):
    dataset = load_dataset.load_dataset(name, split, data_dir=data_dir)
    return sorted((one["image"].numpy().tobytes(), int(one["label"])) for one in dataset)


def test_a_folder_becomes_a_set(photos, tmp_path, capsys):
    options = ["--as=birds", f"--data_dir={tmp_path}", "--num_shards=2"]
    assert main(["prepare", f"folder:{photos}", *options]) == 0
    output = capsys.readouterr().out
    assert "Written as tfds:birds:1.0.0" in output
    assert "18 images decoded: all well" in output
    assert len(list(tmp_path.glob("birds/1.0.0/*train*tfrecord*"))) == 2
    for split in ("train", "test"):
        # Turned upright, as in the folder.
        assert contents("tfds:birds", split, tmp_path) == contents(f"folder:{photos}", split)
    assert main(["prepare", f"folder:{photos}", *options]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.fixture
def stored_photos(photos, ram):
    """The address of a copy of the photos in a store."""
    address = epath.Path(ram()) / "photos"
    for path in photos.glob("*/*/*"):
        target = address / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return address


def test_a_folder_in_a_store_becomes_a_set(photos, stored_photos, tmp_path):
    options = ["--as=birds", f"--data_dir={tmp_path}"]
    assert main(["prepare", f"folder:{stored_photos}", *options]) == 0
    for split in ("train", "test"):
        assert contents("tfds:birds", split, tmp_path) == contents(f"folder:{photos}", split)


@pytest.mark.parametrize("of_table, of_photos", [("local", ""), ("local", "ram"), ("ram", "")])
def test_a_table_becomes_a_set_in_a_store(
    of_table, of_photos, photos, stored_photos, tmp_path, ram
):
    rows = [
        f"{stored_photos / name if of_photos else name},{path.parent.name},{path.parts[-3]}"
        for path in sorted(photos.glob("*/*/*"))
        for name in [path.relative_to(photos)]
    ]
    folder = {"local": tmp_path if of_photos else photos, "ram": stored_photos}[of_table]
    table, bucket = folder / "table.csv", ram()
    table.write_text("path,label,split\n" + "\n".join(rows) + "\n")
    assert main(["prepare", f"csv:{table}", "--as=table", f"--data_dir={bucket}"]) == 0
    for split in ("train", "test"):
        assert contents("tfds:table", split, bucket) == contents(f"folder:{photos}", split)


def test_what_a_store_does_not_have_is_named(stored_photos, tmp_path, capsys):
    (tmp_path / "t.csv").write_text(f"path,label\n{stored_photos}/none.jpg,crow\n")
    for source in (f"csv:{tmp_path}/t.csv", f"csv:{stored_photos}/t.csv"):
        assert main(["prepare", source, "--as=x", f"--data_dir={tmp_path}"]) == 2
        error = capsys.readouterr().err
        assert str(stored_photos) in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,class\na.jpg,b\n", "has no label"),
        ("path,label\n", "has none"),
        ("path,label\nnone.jpg,crow\n", "Line 2 of"),
        ("path,label\n,crow\n", "Line 2 of"),
    ],
)
def test_tables_that_cannot_be_read_are_explained(text, message, tmp_path, capsys):
    (tmp_path / "t.csv").write_text(text)
    assert main(["prepare", f"csv:{tmp_path / 't.csv'}", "--as=x", f"--data_dir={tmp_path}"]) == 2
    assert message in capsys.readouterr().err


def test_a_name_that_cannot_be_one_is_refused(photos, tmp_path, capsys):
    for options in (["--as=My Birds"], []):
        assert main(["prepare", f"csv:{photos}/t.csv", *options, f"--data_dir={tmp_path}"]) == 2
        assert "Expected a name of small letters" in capsys.readouterr().err


def test_beam_options_reach_tfds(monkeypatch, tmp_path):
    import sys
    import types

    import tensorflow_datasets as tfds

    received = {}

    class Builder:
        MANUAL_DOWNLOAD_INSTRUCTIONS = None
        url_infos = types.MappingProxyType({})

        def is_prepared(self):
            return False

        def download_and_prepare(self, download_config):
            received["options"] = download_config.beam_options

    monkeypatch.setattr(tfds, "builder", lambda *_, **__: Builder())
    with pytest.raises(UsageError, match="pip install apache-beam"):
        prepare_dataset.prepare("tfds:c4", str(tmp_path), beam_options=["--runner=X"])
    options = types.ModuleType("apache_beam.options")
    options.pipeline_options = types.SimpleNamespace(PipelineOptions=lambda flags: flags)
    monkeypatch.setitem(sys.modules, "apache_beam", types.ModuleType("apache_beam"))
    monkeypatch.setitem(sys.modules, "apache_beam.options", options)
    prepare_dataset.prepare("tfds:c4", str(tmp_path), beam_options=["--runner=X"])
    assert received == {"options": ["--runner=X"]}
