"""The printed table is the counted one."""

import csv

import pytest

import keras_vit
from benchmarks import table_6_exaflops


def test_every_row_of_table_6_is_printed_with_our_count(capsys):
    table_6_exaflops.main([])
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:20]]
    rows = {(row[0], row[1]): row[2:] for row in cells}
    assert len(rows) == 18
    assert rows["ViT-B/16", "7"] == ["85.8M", "17.56", "16.35", "223.5", "224", "-0.22%", ""]
    assert "half of the same model's 1668" in rows["R50+ViT-L/16", "7"][-1]
    assert sum(row[-1] != "" for row in rows.values()) == 1


def test_csv_holds_the_same_numbers(capsys):
    table_6_exaflops.main(["--csv"])
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 18
    assert float(rows[5]["gmacs"]) == keras_vit.costs("ViT-H/14", num_classes=None).macs / 1e9
    assert rows[5]["model"] == "ViT-H/14"


def test_one_model_by_layer_type(capsys):
    table_6_exaflops.main(["ViT-B/16", "--image_size", "384"])
    assert "55,484,350,464" in capsys.readouterr().out


def test_an_unknown_model_ends_with_a_message(capsys):
    with pytest.raises(SystemExit) as exit_status:
        table_6_exaflops.main(["ViT-Z/16"])
    assert exit_status.value.code == 2
    assert "Received: 'ViT-Z/16'" in capsys.readouterr().err
