"""A damaged config of a run is named in one line."""

import json
import pathlib

import pytest

from training import config_keys
from training.io.model_source import load_model, saved_arguments
from training.io.run_config import read_run_config

CONFIG = config_keys.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})


def test_what_a_run_writes_is_read(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(config_keys.to_json(CONFIG))
    assert read_run_config(file) == json.loads(config_keys.to_json(CONFIG))


def changed(name, value):
    config = json.loads(config_keys.to_json(CONFIG))
    *sections, last = name.split(".")
    owner = config
    for section in sections:
        owner = owner[section]
    owner[last] = value
    return json.dumps(config).encode()


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"[]", "expected an object, received a list"),
        (b"null", "expected an object, received a NoneType"),
        (b"{}", "it has no key of a config"),
        (b"[" * 200_000, "recursion"),
        (b'{"model": ' * 20_000 + b"1" + b"}" * 20_000, "recursion"),
        (b"{", "Expecting property name"),
        (b"", "Expecting value"),
        (b"\xff\xfe", "can't decode byte"),
        (changed("model", 5), "model is 5"),
        (changed("optimizer", None), "optimizer is None"),
        (changed("seed", "1"), "seed is '1', expected a int"),
        (changed("dataset", {}), "expected a str"),
        (changed("few_shot.shots", 3), "few_shot.shots is 3"),
    ],
)
def test_damage_is_named(content, reason, tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    for read in (read_run_config, lambda _: saved_arguments(tmp_path)):
        with pytest.raises(
            ValueError, match=r"Expected the config of a run\. .* is damaged"
        ) as error:
            read(file)
        assert str(file) in str(error.value) and reason in str(error.value)
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04" + bytes(100)])
def test_damaged_keras_files_are_named(content, tmp_path):
    file = pathlib.Path(tmp_path / "model.keras")
    file.write_bytes(content)
    for read in (load_model, saved_arguments):
        with pytest.raises(ValueError, match=r"model\.keras.* is damaged or of another kind"):
            read(file)
