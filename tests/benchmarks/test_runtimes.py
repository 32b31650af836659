"""The table of runtimes."""

from benchmarks import runtimes
from benchmarks.__main__ import main
from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.verification.verify import verify


def row(*options, capsys):
    status = main(["runtimes", "--family=ViT*", *options])
    output = capsys.readouterr().out
    (line,) = [line for line in output.splitlines() if line.startswith("| ViT")]
    return status, [cell.strip() for cell in line.strip("|").split("|")], output


def test_a_cell_is_the_error_and_a_table_goes_on_from_its_cells(monkeypatch, tmp_path, capsys):
    file = tmp_path / "cells.json"
    options = ["--runtime=interpreter,compiled", f"--cells={file}"]
    status, cells, _ = row(*options, capsys=capsys)
    assert status == 0 and len(cells) == 3
    assert all(float(cell) < 1e-5 for cell in cells[1:])
    monkeypatch.setattr(runtimes, "small_model", None)  # nothing is computed again
    assert row(*options, capsys=capsys)[1] == cells
    file.write_text(file.read_text().replace('"interpreter": "', '"interpreter": "**wrong**: '))
    assert row(*options, capsys=capsys)[0] == 1


def test_weights_in_float16_have_errors_of_their_own(capsys):
    status, cells, _ = row("--runtime=interpreter", "--weights=float16", capsys=capsys)
    assert status == 0 and 1e-5 < float(cells[1]) < 1e-2


def test_a_wrong_cell_and_a_missing_runtime_are_told(monkeypatch, capsys):
    def wrong(model, file, images, runtime, **kwargs):
        if runtime == "gpu":
            raise RuntimeMissing("Expected a Vulkan driver.")
        head = model.get_layer("head")
        head.bias.assign(head.bias + 1)
        return verify(model, file, images, runtime=runtime, **kwargs)

    monkeypatch.setattr(runtimes, "verify", wrong)
    status, cells, output = row("--runtime=interpreter,gpu", capsys=capsys)
    assert status == 1 and len(cells) == 2 and cells[1].startswith("**wrong**")
    assert "gpu is not here: Expected a Vulkan driver." in output
