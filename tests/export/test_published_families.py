"""Every family of published checkpoints: from its file to `.keras`, TF-Hub and TFLite."""

import keras
import numpy as np
import pytest

from keras_vit import export

# A golden case of each; classifiers read what a family's own heads read.
FAMILIES = {
    "vit": "the original's",
    "hybrid": "AugReg's hybrids",
    "bv_s16": "better plain ViT",
    "bv_siglip": "SigLIP of big_vision",
    "flexivit": "FlexiViT",
    "bit": "Big Transfer",
    "hf": "ViT of Hugging Face",
    "timm": "ViT of timm",
    "deit": "DeiT",
    "deit3": "DeiT III",
    "dinov2": "DINOv2 of timm",
    "dinov2_registers": "the same with registers",
    "siglip": "SigLIP of timm",
    "hf_dinov2_registers": "DINOv2 of Hugging Face",
    "hf_siglip": "SigLIP of Hugging Face",
}
# Of which each has a graph of its own; the others' are one of these, or of test_variants.py's.
QUICK = ("dinov2_registers", "hf_dinov2_registers")


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
        report = export.verify(model, artifact, images, costs=False)
        assert report.ok, report
