"""cuDNN's attention where there is no GPU: as a program for one, and with JAX's plain kernel."""

import numpy as np
import pytest

from keras_vit.layers import EncoderBlock
from tests.keras_vit.small import forward, make_images, make_vit, of_jax

pytestmark = of_jax
KERNEL = "__cudnn$fmha"


@pytest.fixture
def nvidia(monkeypatch):
    """Lets the layers believe that there is a GPU, for which JAX lowers programs anywhere."""
    monkeypatch.setattr("keras_vit.backends.jax.on_nvidia", lambda: True)
    cudnn = "jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version"
    monkeypatch.setattr(cudnn, lambda: 91200)


def program(dtype="bfloat16", training=True, first=False, channels=32, length=5, **arguments):
    import jax

    layer = EncoderBlock(2, 8, dtype=dtype, **{"attention_type": "fused"} | arguments)
    tokens = np.zeros((2, length, channels), dtype)
    layer.build(tokens.shape)
    weights = [variable.value for variable in layer.trainable_variables]
    state = [variable.value for variable in layer.non_trainable_variables]

    def loss(weights, tokens):
        inputs = (tokens[:, :1], tokens) if first else (tokens,)
        return layer.stateless_call(weights, state, *inputs, training=training)[0].sum()

    traced = jax.jit(jax.grad(loss)).trace(weights, tokens)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.usefixtures("nvidia")
@pytest.mark.parametrize("length", [4, 5])
def test_gpus_call_the_kernel_both_ways(length):
    text = program(length=length)
    assert f"{KERNEL}Softmax(" in text and f"{KERNEL}SoftmaxBackward(" in text
    assert KERNEL in program(attention_dropout_rate=0.1, training=False)


@pytest.mark.usefixtures("nvidia")
@pytest.mark.rows(
    *(("attention_type", kind) for kind in ("plain", "relative")),
    *(("channels", number) for number in (24, 2 * 136)),
    *(("dtype", "float32"), ("attention_dropout_rate", 0.1), ("first", True)),
)
def test_plain_where_something_needs_the_probabilities(name, value):
    assert KERNEL not in program(**{name: value})


def test_plain_without_a_gpu(monkeypatch):
    from keras_vit.backends import jax as ours

    monkeypatch.setattr(ours, "on_nvidia", lambda: False)
    assert KERNEL not in program()


@pytest.mark.usefixtures("nvidia")
@pytest.mark.parametrize("classifier", ["gap", "token_gap"])  # 16 tokens, and 17
def test_model_computes_the_same(classifier, monkeypatch):
    import jax

    called = []

    def instead(*arrays, implementation, **options):
        called.append(implementation)
        return attention(*arrays, **options, implementation="xla")

    attention = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", instead)
    arguments = {"dtype": "bfloat16", "classifier": classifier}
    plain, fused = make_vit(**arguments), make_vit(flash_attention=True, **arguments)
    expected = forward(plain, make_images()).astype("float32")
    assert not called
    found = forward(fused, make_images()).astype("float32")
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())
    assert called == ["cudnn"] * 2
