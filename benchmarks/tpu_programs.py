"""Compiles the JAX engine's training step for a TPU topology, in a process of its own.

It needs KERAS_BACKEND=jax from the start: TensorFlow and libtpu do not share a process well.
"""

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax.experimental import topologies
from keras_vit.training.engine.jax_mesh import (
    batch_sharding,
    create_mesh,
    replicated,
    state_sharding,
)

from benchmarks.tpu_compile import DROPOUT_RATE, OPTIMIZER, PRECISION, collectives, reason
from keras_vit import create_model
from keras_vit.training.engine.jax import JaxStep
from keras_vit.training.engine.step import Totals
from keras_vit.training.recipes.losses import build_loss
from keras_vit.training.recipes.optimizers_and_schedules import build_optimizer


def lower(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    devices: Sequence[jax.Device],
    mesh: tuple[int, int],
    images: int,
    accumulation_steps: int = 1,
) -> jax.stages.Lowered:
    """Returns the JAX engine's step of a model, lowered for devices; its arrays are never made.

    Args:
        model: images to logits.
        optimizer: of `training.recipes.optimizers_and_schedules`, not built.
        devices: of a topology, or of this machine.
        mesh: (data, fsdp).
        images: per device and step.
        accumulation_steps: micro-batches that these are divided into.
    """
    grid = create_mesh(*mesh, devices)
    optimizer.build(model.trainable_variables)
    batch_size = images * len(devices)
    steps = JaxStep(
        grid,
        model,
        optimizer,
        build_loss("softmax"),
        batch_size=batch_size,
        accumulation_steps=accumulation_steps,
    )
    state = [
        _array(variable.shape, variable.dtype, state_sharding(grid, variable.shape))
        for variable in steps.trained
    ]
    sharding, whole = batch_sharding(grid), replicated(grid)
    batch = {
        "image": _array((batch_size, *model.input_shape[1:]), jnp.float32, sharding),
        "label": _array((batch_size, *model.output_shape[1:]), jnp.float32, sharding),
    }
    requests = _array((2,), jnp.float32, whole)
    totals = Totals(_array((4,), jnp.float32, whole), _array((), jnp.int32, whole))
    return steps.function.trace(state, [], batch, requests, totals).lower(
        lowering_platforms=(devices[0].platform,)
    )


def _array(shape, dtype, sharding):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def compile_step(
    model: str,
    topology: str,
    images: int,
    mesh: tuple[int, int],
    accumulation_steps: int,
    remat: bool,
) -> tuple[dict[str, Any], None]:
    """Compiles the step; the arguments are those of the command, `images` those of a chip.

    Returns the `seconds` of compiling, and an `error` or what is found of the program: `flops`,
    `bytes` that the compiler counts, those of its `arguments` and `temporaries`, its `collectives`.
    """
    keras.config.set_dtype_policy(PRECISION)
    optimizer = build_optimizer(OPTIMIZER)
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    # Within the scope Keras makes no values for variables, which a large model has no room for.
    # Leaving it would make them: the process ends within.
    keras.StatelessScope().__enter__()
    built = create_model(model, num_classes=1000, dropout_rate=DROPOUT_RATE, remat=remat)
    lowered = lower(built, optimizer, devices, mesh, images, accumulation_steps)
    start = time.monotonic()
    try:
        program = lowered.compile().runtime_executable()
    except jax.errors.JaxRuntimeError as error:
        return {"seconds": time.monotonic() - start, "error": reason(error)}, None
    seconds = time.monotonic() - start
    cost, memory = program.cost_analysis(), program.get_compiled_memory_stats()
    cost = cost[0] if isinstance(cost, list) else cost
    return {
        "seconds": seconds,
        "flops": cost["flops"],
        "bytes": cost["bytes accessed"],
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "collectives": collectives(program.hlo_modules()[0].to_string()),
    }, None
