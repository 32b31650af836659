"""What every way to fine-tune trains, freezes and resumes."""

import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "transfer.py"


@pytest.mark.long
def test_which_weights_move_and_how_far(launch, tmp_path):
    process = launch(SCRIPT, tmp_path)
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0, output
