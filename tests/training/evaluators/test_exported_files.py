"""Texts inside of what was exported: right, or refused by the name of the file."""

import json

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


@pytest.mark.parametrize("activation", ["softmax", "sigmoid", None])
def test_what_export_writes(activation, assets):
    assert labels_of(assets.parent) is None and interface_of(assets.parent) == {}
    written = {"preprocessing": "decode|resize(8)", "activation": activation}
    (assets / "interface.json").write_text(json.dumps(written))
    assert interface_of(assets.parent) == written
    (assets / "labels.txt").write_bytes(b"crow\n\xe9\n")
    with pytest.raises(ValueError, match=r"Expected a text in UTF-8. Received: .*labels\.txt"):
        labels_of(assets.parent)
