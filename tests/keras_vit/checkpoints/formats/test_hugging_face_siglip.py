"""Variations of SigLIP's files; their outputs are among the golden cases."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights

HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


@pytest.fixture
def tower(cases):
    return cases["hf_siglip"]


def test_the_tower_by_itself(tower, golden, build_case, forward, tmp_path):
    """As transformers 5 calls it in memory, without a prefix."""
    arrays = {
        name.removeprefix("vision_model."): array
        for name, array in golden.checkpoint(tower).items()
        if name.startswith("vision_model.")
    }
    save_file(arrays, tmp_path / "a.safetensors")
    model = build_case(tower)
    keras_vit.load_checkpoint(model, tmp_path / "a.safetensors", **HALF)
    expected = np.array(tower["logits"])
    outputs = forward(model, golden.images_of(tower))
    assert np.abs(outputs - expected).max() < 2e-5 * expected.std()


def test_a_processor_of_transformers_5(tower, golden, build_case, tmp_path):
    save_file(golden.checkpoint(tower), tmp_path / "model.safetensors")
    processor = {"image_processor": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}}
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    keras_vit.load_checkpoint(build_case(tower), tmp_path)


@pytest.mark.parametrize("prefix", ["vision_model.", ""])
def test_head_is_not_attention_pooling(prefix, tower, golden, build_case, to_numpy, tmp_path):
    """Their module `head` is ours `MAPHead_0`; what `skip` and transfer call head is logits."""
    arrays = {
        name.replace("vision_model.", prefix): array
        for name, array in golden.checkpoint(tower).items()
        if name.startswith("vision_model.")
    }
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "preprocessor_config.json").write_text(
        '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    for load in (load_weights, lambda m, p: keras_vit.load_checkpoint(m, p, skip=("head",))):
        model = build_case(tower, num_classes=4)
        load(model, tmp_path)
        probe = to_numpy(model.get_layer("pool").probe)
        np.testing.assert_array_equal(probe, arrays[f"{prefix}head.probe"])


def test_positions_are_resized(tower, golden, build_case, write_case, to_numpy, tmp_path):
    model = build_case(tower, image_size=112)
    keras_vit.load_checkpoint(model, write_case(tower, tmp_path), **HALF)
    table = to_numpy(model.get_layer("position_embedding").embedding)
    name = "vision_model.embeddings.position_embedding.weight"
    expected = golden.checkpoint(tower)[name].reshape(4, 4, -1)
    np.testing.assert_array_equal(table.reshape(7, 7, -1)[::2, ::2], expected)


def test_a_classifier_reads_the_mean(cases, build_case, write_case, tmp_path):
    case = cases["hf_siglip_classifier"]
    with pytest.raises(CheckpointError, match='classifier="gap"'):
        keras_vit.load_checkpoint(
            build_case(case, classifier="map"), write_case(case, tmp_path), **HALF
        )


def test_attention_pooling_is_left_over_without_a_classifier(
    tower, build_case, write_case, tmp_path
):
    with pytest.raises(CheckpointError) as error:
        keras_vit.load_checkpoint(
            build_case(tower, classifier="gap"), write_case(tower, tmp_path), **HALF
        )
    assert all(name.startswith("vision_model.head.") for name in error.value.left_over)


def test_the_towers_configuration_is_compared(tower, build_case, write_case, tmp_path):
    path = write_case(tower, tmp_path)
    (tmp_path / "config.json").write_text('{"vision_config": {"num_attention_heads": 3}}')
    with pytest.raises(CheckpointError, match="num_heads=3"):
        keras_vit.load_checkpoint(build_case(tower), path, **HALF)
