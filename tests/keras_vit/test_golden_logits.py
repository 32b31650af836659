"""Numbers of the original implementations, from checkpoint to logits and back."""

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.official_names import weights_of

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
    name, cases, golden, build_case, write_case, load_case, tmp_path, forward
):
    case = cases[name]
    model = build_case(case)
    flexible = {"flexible": True} if name.startswith("flexivit") else {}
    load_case(model, case, write_case(case, tmp_path), **flexible)
    logits = forward(model, golden.images_of(case))
    expected = np.array(case["logits"])
    assert np.abs(logits - expected).max() < 2e-5 * expected.std()


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


@pytest.mark.parametrize("name", (*PUBLISHED, *HUGGING_FACE))
def test_pytorch_file_is_written_as_npz(
    name, cases, golden, build_case, write_case, load_case, tmp_path, to_numpy
):
    case = cases[name]
    model, other = build_case(case), build_case(case)
    load_case(model, case, write_case(case, tmp_path))
    keras_vit.save_checkpoint(model, tmp_path / "case.npz")
    keras_vit.load_checkpoint(other, tmp_path / "case.npz")
    for mine, theirs in zip(model.variables, other.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(mine), to_numpy(theirs))


@pytest.fixture
def tiny_model(tmp_path):
    """Returns a function from (gelu, representation size) to a model of weights of a closed form.

    It loads 42 arrays in their sorted names' order.
    """

    def build(gelu, representation_size):
        sizes = {"image_size": 4, "patch_size": 2, "hidden_size": 8, "mlp_dim": 16, "num_heads": 2}
        sizes |= {"num_layers": 2, "num_classes": 3, "representation_size": representation_size}
        return keras_vit.VisionTransformer(**sizes, gelu=gelu)

    def make(gelu, representation_size):
        arrays = {weight.name: weight.shape for weight in weights_of(build(gelu, 8))}
        assert len(arrays) == 42
        for index, name in enumerate(sorted(arrays)):
            i = np.arange(np.prod(arrays[name]))
            value = 0.2 * np.sin(0.37 * (i + 1) + 1.3 * index) + name.endswith("/scale")
            arrays[name] = value.reshape(arrays[name]).astype(np.float32)
        np.savez(tmp_path / "tiny.npz", **arrays)
        model = build(gelu, representation_size)
        skip = () if representation_size else ("pre_logits",)
        keras_vit.load_checkpoint(model, tmp_path / "tiny.npz", skip=skip)
        return model

    return make


@pytest.fixture
def tiny_image():
    return np.sin(0.05 * (np.arange(48) + 1)).reshape(1, 4, 4, 3).astype(np.float32)


@pytest.mark.parametrize(
    ("gelu", "representation_size", "expected"),
    [
        ("tanh", 8, [-0.097806163, -0.038993072, 0.025097548]),
        ("erf", 8, [-0.097806652, -0.038994634, 0.025095125]),
        ("tanh", None, [-1.008276806, -0.899739594, -0.669426849]),
        ("erf", None, [-1.00830515, -0.899776645, -0.669467591]),
    ],
)
def test_logits_of_the_closed_form(
    gelu, representation_size, expected, tiny_model, tiny_image, forward
):
    logits = forward(tiny_model(gelu, representation_size), tiny_image)[0]
    tolerance = 1e-6 if representation_size else 5e-6
    np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance)


def test_attention_of_the_closed_form(tiny_model, tiny_image, to_numpy):
    maps = to_numpy(keras_vit.attention_maps(tiny_model("erf", 8), tiny_image))
    expected = [0.199704687, 0.19822921, 0.201385164, 0.198406987, 0.202273952]
    assert maps.shape == (2, 1, 2, 5, 5)
    np.testing.assert_allclose(maps[-1, 0, 0, 0], expected, atol=2e-7)


# Residual units round their activations after every convolution.
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("vit", 2e-2), ("vit_gap", 2e-2), ("timm", 2e-2), ("hybrid", 4e-2), ("bit", 4e-2)],
)
def test_bfloat16_stays_close(
    name, tolerance, cases, golden, build_case, write_case, load_case, tmp_path, forward
):
    case = cases[name]
    model = build_case(case, dtype="mixed_bfloat16")
    load_case(model, case, write_case(case, tmp_path))
    logits = forward(model, golden.images_of(case))
    expected = np.array(case["logits"])
    assert logits.dtype == np.float32
    assert np.linalg.norm(logits - expected) < tolerance * np.linalg.norm(expected)
