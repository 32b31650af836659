"""Every place that drops something, alone."""

import keras
import numpy as np
import pytest

from keras_vit.layers import Dropout, EncoderBlock

RATE = 0.75
WIDTH = 8


def set_dense(layer, kernel=0.0, bias=0.0):
    layer.kernel.assign(np.broadcast_to(np.float32(kernel), layer.kernel.shape))
    layer.bias.assign(np.full(layer.bias.shape, bias, "float32"))


def drop_only_at(layer, kept):
    """Turns off every dropout inside of `layer` but one."""
    for inner in layer._flatten_layers(include_self=False):
        if isinstance(inner, Dropout) and inner is not kept:
            inner.rate = 0


def assert_dropped(dropped, plain):
    """Three in four are zero and the others four times as large."""
    zeros = dropped == 0
    assert (plain != 0).all()
    assert abs(zeros.mean() - RATE) < 0.05
    np.testing.assert_allclose(dropped[~zeros], plain[~zeros] / (1 - RATE), rtol=1e-5, atol=1e-5)


@pytest.fixture
def block():
    """A block that adds 1 to each token, by attention, and nothing by its MLP."""
    block = EncoderBlock(
        num_heads=2,
        mlp_dim=WIDTH,
        dropout_rate=RATE,
        attention_dropout_rate=RATE,
        stochastic_depth_rate=RATE,
    )
    block.build((None, 4, WIDTH))
    set_dense(block.attention.out, bias=1)
    set_dense(block.mlp.output_dense)
    return block


@pytest.fixture
def added(to_numpy):
    """Returns a function of a layer to what it makes of zeros, (examples, 4, WIDTH)."""

    def compute(layer, training, examples=400):
        return to_numpy(layer(np.zeros((examples, 4, WIDTH), "float32"), training=training))

    return compute


def set_mlp(mlp, site):
    """Makes each element depend on one element of `site`, "hidden" or "output", alone."""
    set_dense(mlp.hidden_dense, bias=1)
    set_dense(mlp.output_dense, np.eye(WIDTH) if site == "hidden" else 0, bias=site == "output")


def test_attention_output(block, added):
    drop_only_at(block, block.attention_dropout)
    assert_dropped(added(block, True), added(block, False))


@pytest.mark.parametrize("site", ["hidden", "output"])
def test_mlp_of_a_block(site, block, added):
    set_dense(block.attention.out)
    set_mlp(block.mlp, site)
    drop_only_at(block, getattr(block.mlp, f"{site}_dropout"))
    assert_dropped(added(block, True), added(block, False))


def test_attention_probabilities(block, added):
    """With equal probabilities and values of 1 an output is the fraction of tokens kept."""
    set_dense(block.attention.query)
    set_dense(block.attention.value, bias=1)
    set_dense(block.attention.out, np.eye(WIDTH))
    drop_only_at(block, block.attention.dropout)
    np.testing.assert_allclose(added(block, False), 1, rtol=1e-5)
    kept = added(block, True) * (1 - RATE) * 4
    np.testing.assert_allclose(kept, np.round(kept), atol=1e-5)
    assert set(np.round(kept).ravel()) >= {0, 1, 2, 3}
    assert abs(kept.mean() - 4 * (1 - RATE)) < 0.1


@pytest.mark.parametrize("site", ["attention_depth", "mlp_depth"])
def test_stochastic_depth(site, block, added):
    if site == "mlp_depth":
        set_dense(block.attention.out)
        set_mlp(block.mlp, "output")
    drop_only_at(block, getattr(block, site))
    dropped = added(block, True, examples=4000)
    assert_dropped(dropped, added(block, False, examples=4000))
    assert (dropped == dropped[:, :1, :1]).all()


def test_embeddings(make_vit, random_images, to_numpy):
    model = make_vit(dropout_rate=RATE)
    embedded = keras.Model(model.input, model.endpoints["embedded"])
    images = random_images(20)
    dropped = to_numpy(embedded(images, training=True))
    assert_dropped(dropped, to_numpy(embedded(images, training=False)))
