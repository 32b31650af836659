import subprocess
import sys

import pytest

from training.data import commands, registry
from training.data.__main__ import main


def test_list_shows_every_row_and_what_is_prepared(digits_dir, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["list", f"--data_dir={digits_dir}"]) == 0
    output = capsys.readouterr().out
    for name in registry.DATASETS:
        assert name in output
    (digits,) = (line for line in output.splitlines() if line.strip().startswith("digits "))
    assert "1.0.0" in digits
    assert output.count("1.0.0") == 1


def test_list_and_missing_data_need_no_tensorflow(tmp_path):
    code = (
        "import sys; from training.data.__main__ import main; main(['list']);"
        f"assert main(['check', 'dtd', '--data_dir={tmp_path}']) == 1;"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_check_reports_sizes_classes_and_decoding(digits_dir, capsys):
    assert main(["check", "digits", f"--data_dir={digits_dir}"]) == 0
    output = capsys.readouterr().out
    assert "train: 1,438 examples" in output
    assert "10 classes, 10 of them among the images decoded" in output
    assert "100 images decoded: all well" in output


def test_check_finds_images_that_do_not_decode(tmp_path, capsys):
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"no image")
    assert main(["check", f"folder:{tmp_path}"]) == 1
    assert "problem: train" in capsys.readouterr().out


def test_missing_data_ends_with_the_command_that_gets_it(tmp_path, capsys):
    assert main(["check", "vtab/dtd", f"--data_dir={tmp_path}"]) == 1
    assert f"prepare vtab/dtd --data_dir={tmp_path}" in capsys.readouterr().err


def test_prepare_fails_at_once_without_a_network(tmp_path, capsys, monkeypatch):
    def no_address(*_):
        raise OSError("no network")

    monkeypatch.setattr(commands.socket, "getaddrinfo", no_address)
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert main(["prepare", "cifar10", f"--data_dir={tmp_path}"]) == 1
    assert "www.cs.toronto.edu cannot be reached" in capsys.readouterr().err
    assert main(["prepare", "vtab/resisc45", f"--data_dir={tmp_path}"]) == 1
    assert "NWPU-RESISC45" in capsys.readouterr().err


def test_prepare_writes_the_embedded_data(tmp_path, capsys):
    assert main(["prepare", "digits", f"--data_dir={tmp_path}"]) == 0
    assert (tmp_path / "sklearn_digits" / "1.0.0" / "dataset_info.json").is_file()


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "prepare" in capsys.readouterr().out
