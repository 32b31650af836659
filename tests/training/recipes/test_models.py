"""Depths, decayed rates, and what the keys of freezing name and cannot name."""

import keras
import pytest

import keras_vit
from keras_vit.training.config import default_config
from keras_vit.training.errors import UsageError
from keras_vit.training.recipes.model_freezing_and_layer_decay import (
    depths,
    first_steps,
    freeze_for_good,
    frozen_weights,
    rate_factors,
)

SMALL = {"image_size": 32, "hidden_size": 8, "mlp_dim": 16, "num_heads": 2, "num_classes": 3}


def by_depth(model):
    """Returns the names of the layers of each depth."""
    found = {}
    for path, depth in depths(model).items():
        found.setdefault(depth, set()).add(path.split("/")[0])
    return [found[depth] for depth in range(max(found) + 1)]


def vit_of(**arguments):
    return keras_vit.VisionTransformer(**SMALL | {"patch_size": 8, "num_layers": 2} | arguments)


BLOCKS = [{"encoder_block_00"}, {"encoder_block_01"}]


def test_depths_of_a_vision_transformer():
    stem = {"embedding", "class_token", "register_tokens", "position_embedding"}
    head = {"encoder_norm", "pre_logits", "head"}
    model = vit_of(representation_size=4, register_tokens=1)
    assert by_depth(model) == [stem, *BLOCKS, head]
    # Positions that a later block adds are its own.
    stem = {"embedding", "position_embedding_00"}
    blocks = [BLOCKS[0], BLOCKS[1] | {"position_embedding_01"}]
    model = vit_of(classifier="map", position_placement="every")
    assert by_depth(model) == [stem, *blocks, {"encoder_norm", "pool", "head"}]


def test_the_resnet_of_a_hybrid_is_its_stem_and_units_of_a_resnet_are_its_blocks():
    resnet = {"num_layers": (1, 1), "width_factor": 1}
    stem, _, head = by_depth(vit_of(patch_size=1, num_layers=1, resnet=resnet))
    assert {"conv_root", "block1_unit1", "block2_unit1", "embedding"} < stem
    assert head == {"encoder_norm", "head"}
    assert by_depth(keras_vit.ResNetV2(num_layers=(1, 2), num_classes=3, image_size=32)) == [
        {"conv_root"},
        {"block1_unit01"},
        {"block2_unit01"},
        {"block2_unit02"},
        {"group_norm", "head"},
    ]


def test_a_factor_for_every_weight_below_the_head():
    model = vit_of()
    factors = rate_factors(model, 0.5)
    assert factors["embedding/projection/kernel"] == factors["class_token/token"] == 0.125
    assert factors["encoder_block_00/mlp/hidden_dense/kernel"] == 0.25
    assert factors["encoder_block_01/attention_norm/gamma"] == 0.5
    assert not [path for path in factors if path.startswith(("encoder_norm", "head"))]
    assert rate_factors(model, 1.0) == {}
    with pytest.raises(ValueError, match=r"a model with blocks.*only"):
        rate_factors(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="only")]), 0.5)


def freeze(**keys):
    config = default_config().freeze
    config.update(keys)
    return config


def layers_of(weights):
    return {weight.path.split("/")[0] for weight in weights}


def test_names_patterns_blocks_and_all_but_the_head(vit):
    assert layers_of(frozen_weights(vit, freeze(layers="embedding, encoder_*"))) == {
        "embedding",
        "encoder_block_00",
        "encoder_block_01",
        "encoder_norm",
    }
    inner = frozen_weights(vit, freeze(layers="encoder_block_01/mlp/*_dense"))
    assert [weight.path.split("/", 2)[2] for weight in inner] == [
        "hidden_dense/kernel",
        "hidden_dense/bias",
        "output_dense/kernel",
        "output_dense/bias",
    ]
    stem = {"embedding", "class_token", "position_embedding"}
    assert layers_of(frozen_weights(vit, freeze(blocks=1))) == stem | {"encoder_block_00"}
    every = layers_of(vit.trainable_variables)
    assert layers_of(frozen_weights(vit, freeze(head_only=True))) == every - {"head"}


def test_frozen_for_good_or_until_a_step(vit):
    weights = vit.trainable_variables
    until = freeze(blocks=1, until_step=7)
    freeze_for_good(vit, until)
    freeze_for_good(vit, freeze())
    assert len(vit.trainable_variables) == len(weights)
    chosen = [weight.path for weight in frozen_weights(vit, until)]
    assert first_steps(vit, until) == dict.fromkeys(chosen, 7)
    freeze_for_good(vit, freeze(blocks=1))
    assert {w.path for w in weights} - {w.path for w in vit.trainable_variables} == set(chosen)
    assert first_steps(vit, freeze(head_only=True)) == {}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"layers": "block_00"}, "such as embedding, class_token.*Received: 'block_00'"),
        ({"blocks": 3}, "at most the 2 blocks of the model. Received: 3"),
        ({"layers": "*"}, "weights that are left to train"),
    ],
)
def test_what_names_no_weights_or_all(vit, keys, message):
    with pytest.raises(UsageError, match=message):
        frozen_weights(vit, freeze(**keys))
