import math

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.losses import build_loss
from keras_vit.training.config import default_config
from keras_vit.training.errors import UsageError
from keras_vit.training.recipes.trained_weights import (
    adapt_low_rank,
    depths,
    first_steps,
    freeze_for_good,
    frozen_weights,
    rate_factors,
)
from tests.tiny_vit import tiny_vit

BLOCKS = [{"encoder_block_00"}, {"encoder_block_01"}]


def test_initial_losses_of_a_zero_head_and_those_of_soft_labels():
    for name, bias, classes, expected, dtype in (
        ("sigmoid", -10.0, 21_843, 10.991648, "float32"),
        ("sigmoid", -6.9, 1000, 7.907278, "float32"),
        ("sigmoid", 0.0, 1000, 693.147181, "float32"),
        # Of logits in half precision too, losses are summed in float32.
        ("softmax", 0.0, 1000, 6.907755, "float16"),
    ):
        labels = np.eye(classes, dtype="float32")[[0, classes - 1]]
        logits = np.full((2, classes), bias, dtype)
        assert float(build_loss(name)(labels, logits)) == pytest.approx(expected, rel=5e-6)
    labels = np.array([[0.25, 0.75]], "float32")  # Soft labels.
    logits = np.array([[0.0, math.log(3.0)]], "float32")
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    for name, expected in (("softmax", entropy), ("sigmoid", entropy - math.log(0.5))):
        loss = build_loss(name)
        assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6)
        # Large logits stay finite.
        large = loss(np.array([[1, 0]], "float32"), np.array([[-1e4, 1e4]], "float32"))
        assert float(large) == pytest.approx(2e4)


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_is_weighted_by_the_mean_of_the_labels_of_its_image(name, smoothing):
    # One label, soft ones, some of a sum below one, two labels, and none.
    soft = [[0, 0.25, 0, 0.75], [0, 0.1, 0.3, 0]]
    labels = np.array([[1, 0, 0, 0], *soft, [1, 0, 0, 1], [0, 0, 0, 0]], "float32")
    logits = np.array([[0.5, -1.0, 2.0, 0.0], [1.0, 0.0, -0.5, 3.0]], "float32")[[0, 1, 0, 1, 0]]
    weighted = build_loss(name, smoothing, (2.0, 4.0, 1.0, 0.5)).call(labels, logits)
    means = [2.0, 0.25 * 4.0 + 0.75 * 0.5, (0.1 * 4.0 + 0.3 * 1.0) / 0.4, (2.0 + 0.5) / 2, 0.0]
    expected = np.array(build_loss(name, smoothing).call(labels, logits)) * means
    np.testing.assert_allclose(weighted, expected, rtol=1e-6)
    smoothed = build_loss(name).call((1 - smoothing) * labels[:2] + smoothing / 4, logits[:2])
    found = build_loss(name, smoothing).call(labels[:2], logits[:2])
    np.testing.assert_allclose(found, smoothed, rtol=1e-6)


@pytest.mark.parametrize(("alpha", "scale"), [(0.0, 1.0), (None, 1.0), (6.0, 3.0)])
def test_factors_of_lora_are_scaled_by_alpha_over_the_rank(alpha, scale):
    model = tiny_vit(num_layers=1)
    adapt_low_rank(model, 2, *([] if alpha is None else [alpha]))
    dense = model.blocks[0].mlp.hidden_dense
    before = np.array(dense._kernel)
    assert np.array(dense.lora_kernel_a).any()
    dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))
    product = np.array(dense.lora_kernel_a) @ np.array(dense.lora_kernel_b)
    np.testing.assert_allclose(dense.kernel, before + scale * product, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
@pytest.mark.parametrize("labels", [(4, 1), (4,), (4, 5), (1, 4, 10)])
def test_labels_are_never_broadcast_over_classes_or_tokens(name, labels):
    refused = r"\(batch, classes\), in labels and logits\. Received: .* and \(4, 10\)\."
    for call in (build_loss(name), build_loss(name).call):
        with pytest.raises(ValueError, match=refused):
            call(np.zeros(labels, "float32"), np.zeros((4, 10), "float32"))
    with pytest.raises(ValueError, match=r"Received: \(4, 10\) and \(4, 4, 10\)"):
        build_loss(name)(np.zeros((4, 10), "float32"), np.zeros((4, 4, 10), "float32"))
    # Keras passes batches of any length.
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(10)])
    model.compile("sgd", build_loss(name))
    history = model.fit(np.zeros((5, 3)), np.eye(10)[:5], batch_size=2, verbose=0).history
    assert history["loss"][0] == pytest.approx(math.log(10 if name == "softmax" else 2**10), 0.05)


def test_a_configured_loss_is_saved_with_its_settings():
    loss = build_loss("softmax", 0.1, (1.0, 2.0))
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
    assert (copy.label_smoothing, copy.class_weights) == (0.1, (1.0, 2.0))
    with pytest.raises(ValueError, match="'softmax', 'sigmoid'"):
        build_loss("hinge")


def by_depth(model):
    found = {}
    for path, depth in depths(model).items():
        found.setdefault(depth, set()).add(path.split("/")[0])
    return [found[depth] for depth in range(max(found) + 1)]


def test_depths_and_the_factors_of_their_weights():
    stem = {"embedding", "class_token", "register_tokens", "position_embedding"}
    head = {"encoder_norm", "pre_logits", "head"}
    model = tiny_vit(representation_size=4, register_tokens=1)
    assert by_depth(model) == [stem, *BLOCKS, head]
    stem = {"embedding", "position_embedding_00"}  # Positions that a later block adds are its own.
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
    factors = rate_factors(model := tiny_vit(), 0.5)
    assert factors["embedding/projection/kernel"] == factors["class_token/token"] == 0.125
    assert factors["encoder_block_00/mlp/hidden_dense/kernel"] == 0.25
    assert factors["encoder_block_01/attention_norm/gamma"] == 0.5
    assert not [path for path in factors if path.startswith(("encoder_norm", "head"))]
    assert rate_factors(model, 1.0) == {}
    with pytest.raises(ValueError, match=r"a model with blocks.*only"):
        rate_factors(keras.Sequential([keras.layers.Dense(3, name="only")]), 0.5)


def freeze(**keys):
    config = default_config().freeze
    config.update(keys)
    return config


def layers_of(weights):
    return {weight.path.split("/")[0] for weight in weights}


def test_names_patterns_blocks_and_all_but_the_head(vit):
    named = layers_of(frozen_weights(vit, freeze(layers="embedding, encoder_*")))
    assert named == {"embedding", "encoder_block_00", "encoder_block_01", "encoder_norm"}
    inner = frozen_weights(vit, freeze(layers="encoder_block_01/mlp/*_dense"))
    dense = ["hidden_dense/kernel", "hidden_dense/bias", "output_dense/kernel", "output_dense/bias"]
    assert [weight.path.split("/", 2)[2] for weight in inner] == dense
    stem = {"embedding", "class_token", "position_embedding"}
    assert layers_of(frozen_weights(vit, freeze(blocks=1))) == stem | {"encoder_block_00"}
    every = layers_of(vit.trainable_variables)
    assert layers_of(frozen_weights(vit, freeze(head_only=True))) == every - {"head"}
    for keys, message in (
        ({"layers": "block_00"}, "such as embedding, class_token.*Received: 'block_00'"),
        ({"blocks": 3}, "at most the 2 blocks of the model. Received: 3"),
        ({"layers": "*"}, "weights that are left to train"),
    ):
        with pytest.raises(UsageError, match=message):
            frozen_weights(vit, freeze(**keys))


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
    vit.trainable = False
    freeze_for_good(vit, freeze())  # names nothing
