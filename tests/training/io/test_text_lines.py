"""Text files: their lines, or an error that names them."""

import pytest

from training.io.text_lines import read_lines


def test_lines_without_space_around_them(tmp_path):
    (tmp_path / "names.txt").write_text(" crow\r\n\n  great tit \n", encoding="utf-8")
    assert read_lines(tmp_path / "names.txt") == ["crow", "great tit"]


def test_what_is_not_utf_8_is_named(tmp_path):
    (tmp_path / "names.txt").write_bytes("Häher".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a text in UTF-8\. Received: .*names\.txt \("):
        read_lines(tmp_path / "names.txt")
