"""What the keys of freezing name, and what they cannot."""

import pytest

from training.config_keys import default_config
from training.errors import UsageError
from training.recipes.freezing import chosen_weights, first_steps, freeze_for_good


def freeze(**keys):
    config = default_config().freeze
    config.update(keys)
    return config


def layers_of(weights):
    return {weight.path.split("/")[0] for weight in weights}


def test_names_patterns_blocks_and_all_but_the_head(vit):
    assert layers_of(chosen_weights(vit, freeze(layers="embedding, encoder_*"))) == {
        "embedding",
        "encoder_block_00",
        "encoder_block_01",
        "encoder_norm",
    }
    inner = chosen_weights(vit, freeze(layers="encoder_block_01/mlp/*_dense"))
    assert [weight.path.split("/", 2)[2] for weight in inner] == [
        "hidden_dense/kernel",
        "hidden_dense/bias",
        "output_dense/kernel",
        "output_dense/bias",
    ]
    stem = {"embedding", "class_token", "position_embedding"}
    assert layers_of(chosen_weights(vit, freeze(blocks=1))) == stem | {"encoder_block_00"}
    every = layers_of(vit.trainable_variables)
    assert layers_of(chosen_weights(vit, freeze(head_only=True))) == every - {"head"}


def test_frozen_for_good_or_until_a_step(vit):
    weights = vit.trainable_variables
    until = freeze(blocks=1, until_step=7)
    freeze_for_good(vit, until)
    freeze_for_good(vit, freeze())
    assert len(vit.trainable_variables) == len(weights)
    chosen = [weight.path for weight in chosen_weights(vit, until)]
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
        chosen_weights(vit, freeze(**keys))
