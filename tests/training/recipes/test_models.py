"""Depths, decayed rates, and what the keys of freezing name and cannot name."""

import keras
import pytest

import keras_vit
from keras_vit.training.config import default_config
from keras_vit.training.errors import UsageError
from keras_vit.training.recipes import model_freezing_and_layer_decay as recipes
from tests.tiny_vit import tiny_vit


def by_depth(model):
    """Returns the names of the layers of each depth."""
    found = {}
    for path, depth in recipes.depths(model).items():
        found.setdefault(depth, set()).add(path.split("/")[0])
    return [found[depth] for depth in range(max(found) + 1)]


BLOCKS = [{"encoder_block_00"}, {"encoder_block_01"}]


def test_depths_and_the_factors_of_their_weights():
    stem = {"embedding", "class_token", "register_tokens", "position_embedding"}
    head = {"encoder_norm", "pre_logits", "head"}
    model = tiny_vit(representation_size=4, register_tokens=1)
    assert by_depth(model) == [stem, *BLOCKS, head]
    # Positions that a later block adds are its own.
    stem = {"embedding", "position_embedding_00"}
    blocks = [BLOCKS[0], BLOCKS[1] | {"position_embedding_01"}]
    model = tiny_vit(classifier="map", position_placement="every")
    assert by_depth(model) == [stem, *blocks, {"encoder_norm", "pool", "head"}]
    # The ResNet of a hybrid is its stem, and units of a ResNet are its blocks.
    resnet = {"num_layers": (1, 1), "width_factor": 1}
    stem, _, head = by_depth(tiny_vit(image_size=32, patch_size=1, num_layers=1, resnet=resnet))
    assert {"conv_root", "block1_unit1", "block2_unit1", "embedding"} < stem
    assert head == {"encoder_norm", "head"}
    assert by_depth(keras_vit.ResNetV2(num_layers=(1, 2), num_classes=3, image_size=32)) == [
        *({each} for each in ("conv_root", "block1_unit01", "block2_unit01", "block2_unit02")),
        {"group_norm", "head"},
    ]
    # A factor for every weight below the head.
    factors = recipes.rate_factors(model := tiny_vit(), 0.5)
    assert factors["embedding/projection/kernel"] == factors["class_token/token"] == 0.125
    assert factors["encoder_block_00/mlp/hidden_dense/kernel"] == 0.25
    assert factors["encoder_block_01/attention_norm/gamma"] == 0.5
    assert not [path for path in factors if path.startswith(("encoder_norm", "head"))]
    assert recipes.rate_factors(model, 1.0) == {}
    with pytest.raises(ValueError, match=r"a model with blocks.*only"):
        recipes.rate_factors(keras.Sequential([keras.layers.Dense(3, name="only")]), 0.5)


def freeze(**keys):
    config = default_config().freeze
    config.update(keys)
    return config


def layers_of(weights):
    return {weight.path.split("/")[0] for weight in weights}


def test_names_patterns_blocks_and_all_but_the_head(vit):
    named = layers_of(recipes.frozen_weights(vit, freeze(layers="embedding, encoder_*")))
    assert named == {"embedding", "encoder_block_00", "encoder_block_01", "encoder_norm"}
    inner = recipes.frozen_weights(vit, freeze(layers="encoder_block_01/mlp/*_dense"))
    dense = ["hidden_dense/kernel", "hidden_dense/bias", "output_dense/kernel", "output_dense/bias"]
    assert [weight.path.split("/", 2)[2] for weight in inner] == dense
    stem = {"embedding", "class_token", "position_embedding"}
    assert layers_of(recipes.frozen_weights(vit, freeze(blocks=1))) == stem | {"encoder_block_00"}
    every = layers_of(vit.trainable_variables)
    assert layers_of(recipes.frozen_weights(vit, freeze(head_only=True))) == every - {"head"}
    for keys, message in (
        ({"layers": "block_00"}, "such as embedding, class_token.*Received: 'block_00'"),
        ({"blocks": 3}, "at most the 2 blocks of the model. Received: 3"),
        ({"layers": "*"}, "weights that are left to train"),
    ):
        with pytest.raises(UsageError, match=message):
            recipes.frozen_weights(vit, freeze(**keys))


def test_frozen_for_good_or_until_a_step(vit):
    weights = vit.trainable_variables
    until = freeze(blocks=1, until_step=7)
    recipes.freeze_for_good(vit, until)
    recipes.freeze_for_good(vit, freeze())
    assert len(vit.trainable_variables) == len(weights)
    chosen = [weight.path for weight in recipes.frozen_weights(vit, until)]
    assert recipes.first_steps(vit, until) == dict.fromkeys(chosen, 7)
    recipes.freeze_for_good(vit, freeze(blocks=1))
    assert {w.path for w in weights} - {w.path for w in vit.trainable_variables} == set(chosen)
    assert recipes.first_steps(vit, freeze(head_only=True)) == {}
