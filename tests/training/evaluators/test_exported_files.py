"""Texts inside of what was exported: right, or refused by the name of the file."""

import json
import zipfile

import pytest

from keras_vit.training.evaluators.exported_files import interface_of, labels_of


@pytest.fixture
def assets(tmp_path):
    (tmp_path / "assets").mkdir()
    return tmp_path / "assets"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff", "UTF-8"),
        (b"[]", "no object"),
        (b"{", "Expecting property name"),
        (b'{"preprocessing": 5}', "its preprocessing is 5"),
        (b'{"activation": ["softmax"]}', r"its activation is \['softmax'\]"),
    ],
)
def test_damaged_interfaces(content, reason, assets):
    (assets / "interface.json").write_bytes(content)
    with pytest.raises(ValueError, match=f"damaged: .*{reason}.*Export the model again"):
        interface_of(assets.parent)


def test_a_bomb_behind_a_file_is_not_unpacked(tmp_path):
    (tmp_path / "m.tflite").write_bytes(b"TFL3")
    with zipfile.ZipFile(tmp_path / "m.tflite", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.txt", b"a\n" * 2**24)
    with pytest.raises(
        ValueError, match=r"m\.tflite are damaged: its members claim 33554432 bytes"
    ):
        labels_of(tmp_path / "m.tflite")


def test_what_export_writes(assets):
    assert labels_of(assets.parent) is None and interface_of(assets.parent) == {}
    for activation in ("softmax", "sigmoid", "none", None):
        written = {"preprocessing": "decode|resize(8)", "activation": activation}
        (assets / "interface.json").write_text(json.dumps(written))
        assert interface_of(assets.parent) == written
    (assets / "labels.txt").write_bytes(b"crow\n\xe9\n")
    with pytest.raises(ValueError, match=r"Expected a text in UTF-8. Received: .*labels\.txt"):
        labels_of(assets.parent)
