"""Variations of DINOv2's files; their logits are among the golden cases."""

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
PREFIXES = {"hf_dinov2": "dinov2.", "hf_dinov2_registers": "dinov2_with_registers."}


@pytest.fixture(params=PREFIXES)
def case(request, cases):
    return {**cases[request.param], "prefix": PREFIXES[request.param]}


@pytest.fixture
def arrays(case, golden):
    return golden.checkpoint(case)


def renamed(name):
    """The same array in the names of transformers 5."""
    for old, new in {"query": "q_proj", "key": "k_proj", "value": "v_proj"}.items():
        name = name.replace(f"attention.attention.{old}", f"attention.{new}")
    return name.replace("attention.output.dense", "attention.o_proj")


def test_names_of_transformers_5(case, arrays, golden, build_case, forward, tmp_path):
    save_file({renamed(n): a for n, a in arrays.items()}, tmp_path / "a.safetensors")
    model = build_case(case)
    keras_vit.load_checkpoint(model, tmp_path / "a.safetensors", **IMAGENET)
    expected = np.array(case["logits"])
    logits = forward(model, golden.images_of(case))
    assert np.abs(logits - expected).max() < 2e-5 * expected.std()


def test_model_without_classifier(case, arrays, golden, build_case, forward, tmp_path):
    """`Dinov2Model` pools the class token: the first half of the classifier's input."""
    save_file(arrays, tmp_path / "a.safetensors")
    bare = {n.removeprefix(case["prefix"]): a for n, a in arrays.items() if "classifier" not in n}
    save_file(bare, tmp_path / "b.safetensors")
    whole = build_case(case, num_classes=None)
    keras_vit.load_checkpoint(whole, tmp_path / "a.safetensors", skip=("head",), **IMAGENET)
    pooled = build_case(case, num_classes=None, classifier="token")
    keras_vit.load_checkpoint(pooled, tmp_path / "b.safetensors", **IMAGENET)
    images = golden.images_of(case)
    np.testing.assert_allclose(forward(pooled, images), forward(whole, images)[:, :48], atol=2e-5)


def test_transfer_keeps_a_head_of_another_width(case, arrays, build_case, tmp_path):
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "preprocessor_config.json").write_text(
        '{"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}'
    )
    load_weights(build_case(case, classifier="token", num_classes=3), tmp_path)


def test_gated_mlps_are_refused(case, arrays, build_case, tmp_path):
    mlp = case["prefix"] + "encoder.layer.0.mlp."
    gated = {n: a for n, a in arrays.items() if not n.startswith(mlp)}
    gated[f"{mlp}weights_in.weight"] = np.zeros((128, 48), "float32")
    save_file(gated, tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match="SwiGLU"):
        keras_vit.load_checkpoint(build_case(case), tmp_path / "a.safetensors", **IMAGENET)


def test_rows_of_a_class_token_and_of_means(case, arrays, build_case, golden, forward, tmp_path):
    """The classifier's two halves read the class token and the mean of the patches."""
    save_file(arrays, tmp_path / "a.safetensors")
    model = build_case(case)
    keras_vit.load_checkpoint(model, tmp_path / "a.safetensors", **IMAGENET)
    parts = keras.Model(
        model.input, [model.endpoints["encoded"], model.endpoints["representation"]]
    )
    tokens, pooled = forward(parts, golden.images_of(case))
    first = model.num_prefix_tokens
    expected = np.concatenate([tokens[:, 0], tokens[:, first:].mean(1)], axis=-1)
    np.testing.assert_allclose(pooled, expected, atol=1e-6)
