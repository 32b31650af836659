import pytest

import export
from export import single_file
from export.errors import ExportError


def test_a_model_larger_than_a_file_can_be_is_refused_before_it_is_converted(
    make_vit, tmp_path, monkeypatch
):
    model = make_vit()
    monkeypatch.setattr(single_file, "LIMIT", 4 * model.count_params())
    with pytest.raises(ExportError, match=r"less than .* GiB.*export\.to_hub"):
        export.to_tflite(model, tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(single_file, "LIMIT", 4 * model.count_params() + 1)
    single_file.require_single_file(model)
