"""What the paper's runs cost."""

import pathlib

import keras_vit
from keras_vit.training.commands import budget as command
from keras_vit.training.reporting.budget import experiment_table

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "reproduce.md"


def test_hours_are_six_operations_per_multiply_accumulate():
    table = experiment_table(["ViT-B/16"], teraflops=10)
    cells = {row[0]: row[1:] for row in table.rows}
    macs = keras_vit.costs("ViT-B/16", image_size=384).macs
    exaflops = 6 * macs * 7 * 10_000 * 512 / 1e18
    assert cells["sweep CIFAR-10"] == (7, f"{exaflops:.1f} ({exaflops * 1e18 / 1e13 / 3600:.0f} h)")
    # The paper's second version prints 224.
    assert cells["pre-train on JFT-300M"] == (1, "224 (6,210 h)")
    assert cells["fine-tune on VTAB"][0] == 57
    # Table 3 does not pre-train it.
    assert experiment_table(["ViT-Ti/16"], teraflops=10).rows[0][2] == "–"


def test_the_document_shows_what_the_command_prints(capsys):
    assert command.main([]) == 0
    assert capsys.readouterr().out in DOCUMENT.read_text()
