"""Reads the tables that commands print."""

import pytest


@pytest.fixture
def cells(capsys):
    """Returns a function that reads the cells of a text, or of what was printed, line by line."""

    def read(text=""):
        text = text or capsys.readouterr().out
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]

    return read
