"""Every family of published checkpoints: from its file to `.keras`, TF-Hub and TFLite."""

import keras
import numpy as np
import pytest

from keras_vit import export
from tests.export.conftest import verify

# A golden case of each; classifiers read what a family's own heads read.
FAMILIES = ["vit", "hybrid", "bv_s16", "bv_siglip", "flexivit", "bit"]  # Google's
FAMILIES += ["timm", "deit", "deit3", "dinov2", "dinov2_registers", "siglip"]  # timm's
FAMILIES += ["hf", "hf_dinov2_registers", "hf_siglip"]  # Hugging Face's
# Whose graph is none of test_variants.py's.
QUICK = ("dinov2_registers",)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.long) for n in FAMILIES]
)
def test_round_trip(name, cases, golden, build_case, write_case, load_case, tmp_path):
    case = cases[name]
    model = build_case(case)
    flexible = {"flexible": True} if name == "flexivit" else {}
    load_case(model, case, write_case(case, tmp_path), **flexible)
    expected = np.array(case["logits"])

    model.save(tmp_path / "model.keras")
    saved = keras.saving.load_model(tmp_path / "model.keras")
    logits = keras.ops.convert_to_numpy(saved(golden.images_of(case), training=False))
    assert np.abs(logits - expected).max() < 2e-5 * expected.std()

    images = (golden.images_of(case) + 1) / 2
    for artifact in (
        export.to_hub(model, tmp_path / "module"),
        export.to_tflite(model, tmp_path / "model.tflite"),
    ):
        report = verify(model, artifact, images)
        assert report.ok, report
