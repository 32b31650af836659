"""Compiles the JAX engine's own step for a TPU topology and prints JSON.

`jax_compiler.py MODEL TOPOLOGY DATA FSDP IMAGES_PER_CHIP ACCUMULATION_STEPS PRECISION REMAT
DROPOUT_RATE`, with KERAS_BACKEND=jax.
A program of its own, because TensorFlow and libtpu do not share a process well.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax.experimental import topologies

import keras_vit
from benchmarks.harness.compiled_program import describe, reason
from training.engines.jax.mesh import batch_sharding, create_mesh, replicated
from training.engines.jax.train_step import Outcome, State, TrainSteps
from training.recipes.losses import build_loss
from training.recipes.optimizers import build_optimizer


def lower(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    devices: Sequence[jax.Device],
    mesh: tuple[int, int],
    images: int,
    accumulation_steps: int = 1,
) -> jax.stages.Lowered:
    """Returns the step of a model, lowered for devices; its arrays are never made.

    Args:
        model: images to logits.
        optimizer: of `training.recipes.optimizers`, not built.
        devices: of a topology, or of this machine.
        mesh: (data, fsdp).
        images: per device and step.
        accumulation_steps: micro-batches that these are divided into.
    """
    grid = create_mesh(*mesh, devices)
    optimizer.build(model.trainable_variables)
    batch_size = images * len(devices)
    steps = TrainSteps(
        grid,
        model,
        optimizer,
        build_loss("softmax"),
        batch_size=batch_size,
        accumulation_steps=accumulation_steps,
    )

    def array(shape, dtype, sharding):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    state = State(
        *(
            [
                array(variable.shape, variable.dtype, sharding)
                for variable, sharding in zip(variables, shardings, strict=True)
            ]
            for variables, shardings in zip(
                (model.trainable_variables, optimizer.variables), steps.shardings, strict=True
            )
        )
    )
    sharding = batch_sharding(grid)
    batch = {
        "image": array((batch_size, *model.input_shape[1:]), jnp.float32, sharding),
        "label": array((batch_size, *model.output_shape[1:]), jnp.float32, sharding),
    }
    whole = replicated(grid)
    scalar, number = array((), jnp.float32, whole), array((), jnp.int32, whole)
    outcome = Outcome(scalar, scalar, number, array((2,), jnp.float32, whole))
    return steps.function.trace(state, [], batch, outcome).lower(
        lowering_platforms=(devices[0].platform,)
    )


def measure(lowered: jax.stages.Lowered) -> dict[str, Any]:
    """Returns `seconds` of compilation, and an `error` or what `describe` says of the program."""
    start = time.monotonic()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return {"error": reason(error), "seconds": time.monotonic() - start}
    found = describe(program.cost_analysis(), program.memory_analysis(), program.as_text())
    return {"seconds": time.monotonic() - start, **found}


def main(
    name: str,
    topology: str,
    data: str,
    fsdp: str,
    images: str,
    accumulation_steps: str,
    precision: str,
    remat: str,
    dropout_rate: str,
) -> None:
    """Compiles the step of a model for a topology, and prints what `measure` found as JSON."""
    optimizer = build_optimizer(
        {"total_steps": 1000, "warmup_steps": 10, "weight_decay": 0.1, "clip_norm": 1.0}
    )
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    keras.config.set_dtype_policy(precision)
    # Within the scope Keras makes no values for variables, which a large model has no room for.
    with keras.StatelessScope():
        model = keras_vit.create_model(
            name, num_classes=1000, dropout_rate=float(dropout_rate), remat=remat == "True"
        )
        mesh = int(data), int(fsdp)
        lowered = lower(model, optimizer, devices, mesh, int(images), int(accumulation_steps))
        print(json.dumps(measure(lowered)), flush=True)
        # Leaving the scope would make them.
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
