"""Random numbers, kernels and locks of the backend that Keras runs on."""

import contextlib
import threading
import types
from collections.abc import Callable, Iterator

import keras
from keras import ops

from keras_vit.type_hints import Tensor

_CHANGED = threading.Condition()
_USERS: dict[int, int] = {}  # ids of the variables that predict to ids of their threads


def batch_random() -> types.ModuleType:
    """Returns `keras.random`, or a module that draws the same however a batch is divided."""
    # A backend is imported only where it is Keras's.
    if keras.backend.backend() == "tensorflow":
        from keras_vit.backends import tensorflow

        return tensorflow
    if keras.backend.backend() == "jax":
        from keras_vit.backends import jax

        return jax
    return keras.random


def why_not_fused(dtype: str, head_size: int) -> str:
    """Returns why no kernel computes equations 6 and 7 on this machine, or "" where one does.

    JAX has cuDNN's on NVIDIA's GPUs, in 16 bits and for some sizes of heads.
    """
    if (backend := keras.backend.backend()) != "jax":
        return f"JAX has one, and Keras runs on {backend}; set KERAS_BACKEND=jax"
    if dtype not in ("bfloat16", "float16"):
        return f'it computes in 16 bits, and the model in {dtype}; take dtype="mixed_bfloat16"'
    if head_size % 8 or head_size > 128:
        return f"its heads have a multiple of 8 channels, at most 128; the model's have {head_size}"
    from keras_vit.backends.jax import why_no_cudnn

    return why_no_cudnn()


def require_fused(dtype: str, head_size: int) -> None:
    """Raises ValueError, which says why not, unless this machine has such a kernel."""
    if why_not := why_not_fused(dtype, head_size):
        raise ValueError(
            f"Expected a fused kernel for attention: {why_not}. Leave out flash_attention=True "
            "to take one where there is one."
        )


def fused_attention(
    dtype: str, head_size: int
) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    """Returns the kernel, (scaled queries, keys, values) to heads, or None.

    All are (batch, heads, tokens, head_size).
    """
    if why_not_fused(dtype, head_size):
        return None
    from keras_vit.backends.jax import attention, on_host

    return None if on_host() else attention


def token_rows(tokens: Tensor, channels: int) -> Tensor:
    """Returns one row for each token, (batch * tokens, channels); JAX keeps a batch axis.

    TensorFlow's fused products and TFLite's dense layers take matrices. JAX's compilers divide the
    last two axes into tiles. A reshape across tiles copies, and the gradient keeps both copies.
    """
    batched = keras.backend.backend() == "jax" and len(tokens.shape) > 2
    rows = (-1, tokens.shape[1]) if batched else (-1,)
    return ops.reshape(tokens, (*rows, channels))


@contextlib.contextmanager
def predicting(model: keras.Model) -> Iterator[None]:
    """Waits until no other thread predicts with the model, or with one that shares weights with it.

    On JAX, Keras takes the weights out of a model while it predicts. The input of a model may be
    predictions of other models, made in any thread.
    """
    shared = keras.backend.backend() == "jax"
    variables, thread = set(map(id, model.variables if shared else [])), threading.get_ident()
    with _CHANGED:
        _CHANGED.wait_for(lambda: all(_USERS.get(each, thread) == thread for each in variables))
        added = variables - _USERS.keys()
        _USERS.update(dict.fromkeys(added, thread))
    try:
        yield
    finally:
        with _CHANGED:
            for each in added:
                del _USERS[each]
            _CHANGED.notify_all()


def gradient_function(
    model: keras.Model, score: Callable[..., Tensor], finish: Callable[[Tensor, list], Tensor]
) -> Callable[..., Tensor]:
    """Returns a function of (images, probe, *others), compiled on JAX.

    It gives `finish(gradient of score(outputs, *others) in the probe, outputs)`, `outputs` being
    those of `model([images, probe])` in inference. Arrays are of NumPy.
    """
    if keras.backend.backend() == "torch":
        import torch

        def run(images, probe, *others):
            watched = ops.convert_to_tensor(probe).requires_grad_()
            outputs = model([ops.convert_to_tensor(images), watched], training=False)
            scores = score(outputs, *map(ops.convert_to_tensor, others))
            return finish(torch.autograd.grad(scores, watched)[0], outputs)

        return run
    function = batch_random().gradient_function(model, score, finish)

    def call(*arrays):
        with predicting(model):
            return function(*arrays)

    return call
