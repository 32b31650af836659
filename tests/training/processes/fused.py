"""`fused.py DATA_DIR FOLDER` trains with fused attention, on CPUs, alone and on a mesh of four.

Prints what each run called, and what the program calls that JAX makes of its step for NVIDIA.
"""

import contextlib
import json
import os
import re
from collections import Counter
from unittest import mock

import jax
import jax.numpy as jnp

from keras_vit.training.config import overrides
from keras_vit.training.engine.jax import JaxEngine
from keras_vit.training.loop import trainer

RUNS = {
    "plain": {"model": {"flash_attention": False}},
    "one": {},
    "mesh": {"strategy": "sharded", "mesh": {"data": 2, "fsdp": 2}},
}


@contextlib.contextmanager
def kernel_on_cpus(called):
    """Has CPUs compute cuDNN's kernel plainly, after JAX divided it; `called` gets the batches."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn
    from jax._src.interpreters import mlir

    def plainly(lengths, scale):
        lengths = lengths if lengths.size else None
        options = {"query_seq_lengths": lengths, "key_value_seq_lengths": lengths}
        return lambda *of: jax.nn.dot_product_attention(*of, scale=scale, **options)

    def forward(query, key, value, bias, lengths, *_, scale, is_training, **options):
        called.append(("forward", query.shape[0]))
        batch, tokens, heads, _ = query.shape
        outputs = [plainly(lengths, scale)(query, key, value)]
        return outputs + [jnp.zeros((batch, heads, tokens))] * is_training

    def backward(query, key, value, bias, lengths, *others, scale, **options):
        called.append(("backward", query.shape[0]))
        return list(jax.vjp(plainly(lengths, scale), query, key, value)[1](others[-1]))

    for name, function in (("fwd", forward), ("bwd", backward)):
        primitive = getattr(cudnn, f"_dot_product_attention_{name}_p")
        mlir.register_lowering(primitive, mlir.lower_fun(function), platform="cpu")
    version = mock.patch.object(cudnn, "check_cudnn_version", lambda: 91200)
    with version, mock.patch("keras_vit.backends.jax.why_no_cudnn", lambda: ""):
        yield


def for_nvidia(traced):
    """Returns how often a program for NVIDIA's GPUs calls what, by name."""
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    return Counter(re.findall(r"custom_call @([\w$]+)\(", text))


def main(data_dir, folder):
    called, found, compile = [], {}, JaxEngine._compile

    def compile_and_look(engine):
        compile(engine)
        step, engine.function = engine.function, lambda *arrays: look(*arrays)

        def look(*arrays):
            found[name]["program"] = for_nvidia(step.trace(*arrays))
            engine.function = step
            return step(*arrays)

    with kernel_on_cpus(called), mock.patch.object(JaxEngine, "_compile", compile_and_look):
        for name, changes in RUNS.items():
            config = overrides.load_config(os.path.join(os.path.dirname(__file__), "tiny.py"))
            config.model.update({"num_layers": 2} | changes.get("model", {}))
            config.update({key: value for key, value in changes.items() if key != "model"})
            config.update(data_dir=data_dir, precision="mixed_bfloat16", steps_per_call=2)
            config.update(total_steps=8, log_every_steps=2, eval_split="")
            config.optimizer.update(name="sgd", base_lr=0.05)
            found[name] = {}
            trainer.train(config, f"{folder}/{name}")
            found[name]["called"] = sorted({*called})
            called.clear()
    print(json.dumps(found))
