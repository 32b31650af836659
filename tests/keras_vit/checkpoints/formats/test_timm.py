import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError

# The reference took images in [-1, 1].
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


@pytest.fixture
def case(cases):
    return cases["timm"]


@pytest.fixture
def arrays(case, golden):
    return golden.checkpoint(case)


def test_queries_keys_and_values_are_split(arrays, case, build_case, to_numpy, tmp_path):
    save_file(arrays, tmp_path / "timm.safetensors")
    model = build_case(case)
    keras_vit.load_checkpoint(model, tmp_path / "timm.safetensors", **HALF)
    attention = model.blocks[2].attention
    stacked = np.concatenate([to_numpy(d.kernel).T for d in (attention.query, attention.key)])
    np.testing.assert_array_equal(stacked, arrays["blocks.2.attn.qkv.weight"][:96])
    np.testing.assert_array_equal(
        to_numpy(attention.value.bias), arrays["blocks.2.attn.qkv.bias"][96:]
    )


def test_another_resolution_and_head(arrays, case, build_case, to_numpy, tmp_path):
    save_file(arrays, tmp_path / "timm.safetensors")
    model = build_case(case, image_size=(112, 64), num_classes=3)
    keras_vit.load_checkpoint(model, tmp_path / "timm.safetensors", skip=("head",), **HALF)
    table = to_numpy(model.get_layer("position_embedding").embedding)[0]
    np.testing.assert_array_equal(table[0], arrays["pos_embed"][0, 0])
    grid = table[1:].reshape(7, 4, 48)
    np.testing.assert_allclose(grid[::2], arrays["pos_embed"][0, 1:].reshape(4, 4, 48), atol=1e-7)
    assert not to_numpy(model.get_layer("head").kernel).any()


def test_positions_without_the_class_token(arrays, case, build_case, to_numpy, tmp_path):
    """timm's `no_embed_class`."""
    save_file(
        {**arrays, "pos_embed": arrays["pos_embed"][:, 1:].copy()}, tmp_path / "a.safetensors"
    )
    model = build_case(case)
    keras_vit.load_checkpoint(model, tmp_path / "a.safetensors", **HALF)
    table = to_numpy(model.get_layer("position_embedding").embedding)
    assert not table[:, 0].any()
    np.testing.assert_array_equal(table[:, 1:], arrays["pos_embed"][:, 1:])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floating_point_types(dtype, arrays, case, build_case, to_numpy, tmp_path):
    save_file({n: a.astype(dtype) for n, a in arrays.items()}, tmp_path / "a.safetensors")
    model = build_case(case)
    keras_vit.load_checkpoint(model, tmp_path / "a.safetensors", **HALF)
    expected = arrays["head.weight"].T.astype(dtype).astype("float32")
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), expected)


def test_pooling_before_the_norm_is_refused(arrays, case, build_case, tmp_path):
    """timm's `fc_norm` normalizes after pooling, which is another function."""
    other = {
        n.replace("norm.", "fc_norm.") if n.startswith("norm.") else n: a for n, a in arrays.items()
    }
    save_file(other, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError) as error:
        keras_vit.load_checkpoint(build_case(case), tmp_path / "a.safetensors", **HALF)
    assert sorted(error.value.left_over) == ["fc_norm.bias", "fc_norm.weight"]
    assert sorted(error.value.missing) == ["norm.bias", "norm.weight"]


def test_distilled_deit_is_refused(arrays, case, build_case, tmp_path):
    """The mean of two heads is no Vision Transformer's output."""
    save_file({**arrays, "dist_token": arrays["cls_token"]}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=r"dist_token: it is a distilled DeiT"):
        keras_vit.load_checkpoint(build_case(case), tmp_path / "a.safetensors", **HALF)


def test_layer_scale_is_in_the_projections(cases, golden, build_case, to_numpy, tmp_path):
    arrays = golden.checkpoint(cases["dinov2"])
    arrays["mask_token"] = np.ones((1, 48), "float32")
    save_file(arrays, tmp_path / "a.safetensors")
    model = build_case(cases["dinov2"])
    keras_vit.load_checkpoint(model, tmp_path / "a.safetensors", **HALF)
    expected = arrays["blocks.1.mlp.fc2.bias"] * arrays["blocks.1.ls2.gamma"]
    np.testing.assert_array_equal(to_numpy(model.blocks[1].mlp.output_dense.bias), expected)
    kernel = arrays["blocks.1.attn.proj.weight"].T * arrays["blocks.1.ls1.gamma"]
    np.testing.assert_array_equal(to_numpy(model.blocks[1].attention.out.kernel), kernel)


def test_layer_scale_of_another_width_is_left_over(cases, golden, build_case, tmp_path):
    arrays = golden.checkpoint(cases["dinov2"])
    save_file({**arrays, "blocks.2.ls1.gamma": np.ones(1, "float32")}, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError) as error:
        keras_vit.load_checkpoint(build_case(cases["dinov2"]), tmp_path / "a.safetensors", **HALF)
    assert error.value.left_over == ("blocks.2.ls1.gamma",)
