"""Numbers of the original implementations, from checkpoint to logits and back."""

import numpy as np
import pytest

import keras_vit

NPZ_CASES = ("vit", "vit_prelogits", "vit_gap", "hybrid", "hybrid_stage4", "bit")
# Of big_vision itself; FlexiViT's are for patches of another size than the file's.
BIG_VISION = ("bv_s16", "bv_siglip", "flexivit", "flexivit_large")
PUBLISHED = ("deit", "deit3", "dinov2", "dinov2_registers", "siglip")
HUGGING_FACE = ("hf_dinov2", "hf_dinov2_registers", "hf_siglip", "hf_siglip_classifier")
CASES = (*NPZ_CASES, *BIG_VISION, "hf", "timm", *PUBLISHED, *HUGGING_FACE)


def test_every_golden_case_is_tested(cases):
    assert set(cases) == set(CASES)
    assert {n for n, case in cases.items() if case["format"].endswith("npz")} == {
        *NPZ_CASES,
        *BIG_VISION,
    }


@pytest.mark.parametrize("name", CASES)
def test_logits_are_the_references(
    name, cases, build_case, write_case, load_case, tmp_path, assert_logits
):
    case = cases[name]
    model = build_case(case)
    flexible = {"flexible": True} if name.startswith("flexivit") else {}
    load_case(model, case, write_case(case, tmp_path), **flexible)
    assert_logits(model, case)


@pytest.mark.parametrize("name", (*NPZ_CASES, "bv_s16", "bv_siglip"))
def test_npz_is_written_back_bit_for_bit(name, cases, golden, build_case, write_case, tmp_path):
    case = cases[name]
    model = build_case(case)
    keras_vit.load_checkpoint(model, write_case(case, tmp_path))
    keras_vit.save_checkpoint(model, tmp_path / "back.npz")
    written = np.load(tmp_path / "back.npz")
    # Of SigLIP's two towers that of images.
    text = "params/t"
    expected = {n: a for n, a in golden.checkpoint(case).items() if not n.startswith(text)}
    assert set(written.files) == set(expected)
    for array, value in expected.items():
        assert written[array].dtype == value.dtype == np.float32
        assert written[array].shape == value.shape
        assert written[array].tobytes() == value.tobytes()


# Residual units round their activations after every convolution.
