"""Every place that drops something, alone."""

import operator

import keras
import numpy as np
import pytest

from keras_vit.layers import Dropout, EncoderBlock
from tests.keras_vit.small import make_images, make_vit, to_numpy

RATE = 0.75
WIDTH = 8


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_small_rate_is_kept_in_every_precision(dtype):
    layer = Dropout(0.009, seed=0, dtype=dtype)
    dropped = to_numpy(layer(np.ones((100, 10_000), "float32"), training=True)) == 0
    # A million draws: the deviation of their mean is 0.0001.
    assert abs(dropped.mean() - 0.009) < 0.0005


def set_dense(layer, kernel=0.0, bias=0.0):
    layer.kernel.assign(np.broadcast_to(np.float32(kernel), layer.kernel.shape))
    layer.bias.assign(np.full(layer.bias.shape, bias, "float32"))


def added(block, site):
    """Returns what a block makes of zeros, (examples, 4, WIDTH), plainly and dropping at a site."""
    kept = operator.attrgetter(site)(block)
    for inner in block._flatten_layers(include_self=False):
        if isinstance(inner, Dropout) and inner is not kept:
            inner.rate = 0
    zeros = np.zeros((4000, 4, WIDTH), "float32")
    return (to_numpy(block(zeros, training=each)) for each in (False, True))


def assert_dropped(dropped, plain):
    """Three in four are zero and the others four times as large."""
    zeros = dropped == 0
    assert (plain != 0).all()
    assert abs(zeros.mean() - RATE) < 0.05
    np.testing.assert_allclose(dropped[~zeros], plain[~zeros] / (1 - RATE), rtol=1e-5, atol=1e-5)


@pytest.fixture
def block():
    """A block that adds 1 to each token, by attention, and nothing by its MLP."""
    block = EncoderBlock(2, WIDTH, RATE, RATE, RATE)
    block.build((None, 4, WIDTH))
    set_dense(block.attention.out, bias=1)
    set_dense(block.mlp.output_dense)
    return block


ATTENTION = ["attention_dropout", "attention_depth"]
MLP = ["mlp.hidden_dropout", "mlp.output_dropout", "mlp_depth"]


@pytest.mark.parametrize("site", ATTENTION + MLP)
def test_sites_of_a_block(site, block):
    if site in MLP:
        # Each element depends on one element of the site alone.
        hidden = site == "mlp.hidden_dropout"
        set_dense(block.attention.out)
        set_dense(block.mlp.hidden_dense, bias=1)
        set_dense(block.mlp.output_dense, np.eye(WIDTH) if hidden else 0, bias=not hidden)
    plain, dropped = added(block, site)
    assert_dropped(dropped, plain)
    by_example = (dropped == dropped[:, :1, :1]).all()
    assert by_example == site.endswith("depth")


def test_attention_probabilities(block):
    """With equal probabilities and values of 1 an output is the fraction of tokens kept."""
    set_dense(block.attention.query)
    set_dense(block.attention.value, bias=1)
    set_dense(block.attention.out, np.eye(WIDTH))
    plain, dropped = added(block, "attention.dropout")
    np.testing.assert_allclose(plain, 1, rtol=1e-5)
    kept = dropped * (1 - RATE) * 4
    np.testing.assert_allclose(kept, np.round(kept), atol=1e-5)
    assert set(np.round(kept).ravel()) >= {0, 1, 2, 3}
    assert abs(kept.mean() - 4 * (1 - RATE)) < 0.1


def test_embeddings():
    model = make_vit(dropout_rate=RATE)
    embedded = keras.Model(model.input, model.endpoints["embedded"])
    assert_dropped(*(to_numpy(embedded(make_images(20), training=each)) for each in (True, False)))
