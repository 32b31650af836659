import pytest
import tensorflow as tf

from keras_vit.training.commands.data import main, spread
from keras_vit.training.data import dataset_table, prepare, records
from tests.training.data.helpers import error_line, ids, write_photos


def test_list_shows_every_row_and_what_is_prepared(data_dir, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["list", f"--data_dir={data_dir}"]) == 0
    output = capsys.readouterr().out
    for name in dataset_table.DATASETS:
        assert name in output
    (digits,) = (line for line in output.splitlines() if line.lstrip("│ ").startswith("digits "))
    assert "1.0.0" in digits
    assert output.count("1.0.0") == 1


def test_check_reports_sizes_classes_and_decoding(data_dir, capsys):
    assert main(["check", "digits", f"--data_dir={data_dir}"]) == 0
    output = capsys.readouterr().out
    assert "train: 1,438 examples" in output
    assert "10 classes, 10 of them among the images decoded" in output
    assert "100 images decoded: all well" in output
    assert "1,697 images not looked at: --all decodes every one" in output


def test_every_image_is_decoded_and_an_empty_split_is_reported(tmp_path, capsys):
    write_photos(tmp_path, [f"test/{kind}/{number}.png" for kind in "ab" for number in range(60)])
    (tmp_path / "train").mkdir()
    found = sorted(tmp_path.glob("test/*/*"))
    for file in found[7], found[80]:
        file.write_bytes(b"no image")
    assert main(["check", f"folder:{tmp_path}", "--all"]) == 1
    output = capsys.readouterr().out
    assert "train: 0 examples" in output and "test: 120 examples" in output
    assert "problem: train is empty" in output
    assert "118 of 120 images decoded: see above" in output and "not looked at" not in output
    for file in found[7], found[80]:
        assert f"problem: test {file.relative_to(tmp_path)}" in output


@pytest.mark.parametrize(
    "error, status, advice",
    [
        (tf.errors.PermissionDeniedError(None, None, "403\nForbidden"), 2, "Check the name of the"),
        (tf.errors.UnavailableError(None, None, "no host"), 1, "again when the store answers"),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "tfds:x"],
        ["check", "digits"],
        ["index", "tfds:x"],
        ["check", "folder:{}/tfds"],
        ["prepare", "csv:{}/tfds/table.csv", "--as=x"],
    ],
)
def test_a_store_that_refuses_or_fails_is_one_line(
    ram, failing_store, monkeypatch, capsys, arguments, error, status, advice
):
    def refuse(*_, **__):
        raise error

    for name in ("exists", "isdir", "listdir", "open", "stat"):
        monkeypatch.setattr(failing_store, name, refuse, raising=False)
    bucket = ram()
    arguments = [each.format(bucket) for each in arguments]
    assert main([*arguments, f"--data_dir={bucket}/tfds"]) == status
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "error:" in each)
    assert line.startswith(f"error: {bucket}/tfds") and advice in line


def test_images_to_decode_are_spread_and_distinct():
    chosen = spread({"train": 1000, "validation": 2, "test": 60}, 100)
    assert len(set(chosen)) == len(chosen) == 33 + 2 + 33
    assert chosen[:2] == [("train", 0), ("train", 30)]
    assert all(0 <= index < 60 for split, index in chosen if split == "test")


def test_an_index_is_written_beside_the_files_of_a_store(ram, capsys, monkeypatch):
    bucket = ram()
    expected = ids("digits", "train", bucket)
    assert main(["index", "digits", f"--data_dir={bucket}"]) == 0
    assert "index of 2 files of digits" in capsys.readouterr().out
    found = tf.io.gfile.glob(f"{bucket}/sklearn_digits/1.0.0/*.offsets.npy")
    assert len(found) == 2
    monkeypatch.setattr(records, "_scan", None)
    assert ids("digits", "train", bucket) == expected
    assert main(["check", "digits", f"--data_dir={bucket}"]) == 0
    assert main(["index", "folder:photos"]) == 2
    assert "does not exist" in error_line(capsys)


def test_prepare_fails_at_once_without_a_network(tmp_path, capsys, monkeypatch):
    def no_address(*_):
        raise OSError("no network")

    monkeypatch.setattr(prepare.socket, "getaddrinfo", no_address)
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert main(["prepare", "cifar10", f"--data_dir={tmp_path}"]) == 1
    assert "www.cs.toronto.edu cannot be reached" in capsys.readouterr().err
    assert main(["prepare", "vtab/resisc45", f"--data_dir={tmp_path}"]) == 1
    assert "extract NWPU-RESISC45.rar so that" in capsys.readouterr().err
