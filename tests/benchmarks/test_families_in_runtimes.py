"""The table of runtimes."""

import pytest

from benchmarks import families_in_runtimes
from benchmarks.__main__ import main
from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.verification.verify_and_thresholds import verify


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        (["--runtime=interpreter,compiled"], 0, 1e-5),
        (["--runtime=interpreter", "--weights=float16"], 1e-5, 1e-2),
    ],
)
def test_a_cell_is_the_error(options, least, most, cells):
    assert main(["runtimes", "--family=ViT*", *options]) == 0
    ((family, *errors),) = cells()[2:]
    assert family == "ViT, class token" and len(errors) == 2 - ("--weights=float16" in options)
    assert all(least < float(error) < most for error in errors)


def test_a_wrong_cell_and_a_missing_runtime_are_told(monkeypatch, capsys, cells):
    def wrong(model, file, images, runtime, **kwargs):
        if runtime == "gpu":
            raise RuntimeMissing("Expected a Vulkan driver.")
        head = model.get_layer("head")
        head.bias.assign(head.bias + 1)
        return verify(model, file, images, runtime=runtime, **kwargs)

    monkeypatch.setattr(families_in_runtimes, "verify", wrong)
    assert main(["runtimes", "--family=ViT*", "--runtime=interpreter,gpu"]) == 1
    output = capsys.readouterr().out
    ((_, cell),) = cells(output)[2:]
    assert cell.startswith("**wrong**")
    assert "gpu is not here: Expected a Vulkan driver." in output
