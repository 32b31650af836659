"""cuDNN's attention where there is no GPU: as a program for one, and computed plainly."""

from types import SimpleNamespace
from unittest import mock

import keras
import numpy as np
import pytest

from keras_vit.layers import EncoderBlock
from tests.keras_vit.small import BACKEND, forward, gradients, make_images, make_vit, of_jax

KERNEL = "__cudnn$fmhaSoftmax"


@pytest.fixture
def called():
    """Lets the layers believe that there is a GPU; returns what is called of its kernel."""
    from tests.training.processes.fused import kernel_on_cpus

    called = []
    with kernel_on_cpus(called):
        yield called


def program(dtype="bfloat16", training=True, first=False, channels=32, length=5, **arguments):
    import jax

    from tests.training.processes.fused import for_nvidia

    rotation = {name: arguments.pop(name) for name in ("rotary_grid",) if name in arguments}
    layer = EncoderBlock(2, 8, dtype=dtype, **{"attention_type": "fused"} | arguments)
    tokens = np.zeros((2, length, channels), dtype)
    layer.build(tokens.shape)
    weights = [variable.value for variable in layer.trainable_variables]
    state = [variable.value for variable in layer.non_trainable_variables]

    def loss(weights, tokens):
        inputs = (tokens[:, :1], tokens) if first else (tokens,)
        options = {"training": training, **rotation}
        return layer.stateless_call(weights, state, *inputs, **options)[0].sum()

    return for_nvidia(jax.jit(jax.value_and_grad(loss)).trace(weights, tokens))


@of_jax
@pytest.mark.usefixtures("called")
@pytest.mark.rows(
    (4, {}, 1),
    (5, {}, 1),
    (5, {"remat": True}, 2),
    (5, {"rotary_grid": np.zeros((2, 2, 2, 1), "float32")}, 1),
)
def test_gpus_call_the_kernel_both_ways(length, arguments, forwards):
    calls = program(length=length, **arguments)
    assert calls == {KERNEL: forwards, f"{KERNEL}Backward": 1}
    assert program(attention_dropout_rate=0.1, training=False)[KERNEL] == 1


@of_jax
@pytest.mark.usefixtures("called")
@pytest.mark.rows(
    *(("attention_type", kind) for kind in ("plain", "relative")),
    *(("channels", number) for number in (24, 2 * 136)),
    *(("dtype", "float32"), ("attention_dropout_rate", 0.1), ("first", True)),
)
def test_plain_where_something_needs_the_probabilities(name, value):
    assert KERNEL not in program(**{name: value})


@of_jax
@pytest.mark.usefixtures("called")
def test_plain_where_the_host_computes():
    import jax

    for host in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(host):
            assert not program()


@of_jax
@pytest.mark.rows(
    ("cuda 13000", "8.0", None, ""),
    ("cuda 13000", "7.5", None, "it needs compute capability 8.0 (Ampere), and the GPU has 7.5"),
    ("cuda 13000", "12.0", RuntimeError("cuDNN is not detected."), "cuDNN is not detected"),
    ("cpu", None, None, "it is for NVIDIA's GPUs, and JAX runs on cpu"),
)
def test_what_a_machine_lacks(version, capability, error, expected, monkeypatch):
    import jax

    from keras_vit.backends.jax import why_no_cudnn

    backend, device = SimpleNamespace(platform_version=version), SimpleNamespace()
    device.compute_capability = capability
    monkeypatch.setattr(jax.extend.backend, "get_backend", lambda: backend)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    cudnn = "jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version"
    monkeypatch.setattr(cudnn, mock.Mock(side_effect=error, return_value=91200))
    assert why_no_cudnn.__wrapped__() == expected


def computed(**arguments):
    """Returns logits and gradients, each as one vector."""
    model, images = make_vit(num_layers=1, **arguments), make_images()
    found = gradients(model, images)
    return forward(model, images).ravel(), np.concatenate([*map(np.ravel, found.values())])


@of_jax
@pytest.mark.rows("token_gap", long=["gap"])
def test_numbers_are_as_near_to_float32_as_those_of_plain_attention(classifier, called):
    policies = {"dtype": "mixed_bfloat16", "flash_attention": False}, {"dtype": "mixed_bfloat16"}
    exact, plain, fused = (computed(classifier=classifier, **each) for each in ({}, *policies))
    assert sorted(called) == [("backward", 3), ("forward", 3), ("forward", 3)]
    for one, (expected, *others) in enumerate(zip(exact, plain, fused, strict=True)):
        of_plain, of_fused = (np.linalg.norm(each - expected) for each in others)
        assert 0 < of_plain < 0.03 * np.linalg.norm(expected) and of_fused < 1.2 * of_plain, one


@of_jax
def test_one_that_was_demanded_decides_where_it_is_loaded(called, tmp_path, monkeypatch):
    model = make_vit(classifier="gap", dtype="mixed_bfloat16", flash_attention=True)
    for dtype, message in (("float32", "and the model in float32"), ("bfloat16", "have 3")):
        with pytest.raises(ValueError, match=f"fused kernel for attention: .*{message}"):
            make_vit(dtype=dtype, flash_attention=True, hidden_size=12, num_heads=4)
    expected = forward(model, make_images())
    assert called == [("forward", 3)]
    model.save(tmp_path / "m.keras")
    monkeypatch.setattr("keras_vit.backends.jax.why_no_cudnn", lambda: "there is none")
    elsewhere = keras.saving.load_model(tmp_path / "m.keras")
    found = forward(elsewhere, make_images())
    assert len(called) == 1
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())


def test_true_demands_a_kernel_that_is_not_here():
    missing = "JAX runs on cpu" if BACKEND == "jax" else "set KERAS_BACKEND=jax"
    with pytest.raises(ValueError, match=f"{missing}. Leave out flash_attention=True"):
        make_vit(dtype="mixed_bfloat16", flash_attention=True)
