"""Compiles a training step for a TPU topology.

Each of `keras_vit`, `vit_jax` and `stablehlo` runs in a `Process` of its own, with
KERAS_BACKEND=jax, because TensorFlow and libtpu do not share one well. It returns the `seconds` of
compiling, and an `error` or what is found of the program: `flops`, `bytes` that the compiler
counts, those of its `arguments` and `temporaries`, and its `collectives`.
"""

import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.tpu_compile import OPTIMIZER, PRECISION, collectives, reason
from keras_vit import create_model
from keras_vit.training.config import schema
from keras_vit.training.engine.engine_interface import Engine
from keras_vit.training.engine.jax import JaxEngine
from keras_vit.training.engine.jax_mesh import (
    batch_sharding,
    create_mesh,
    replicated,
    state_sharding,
)
from keras_vit.training.engine.update import Objective, Totals
from keras_vit.training.recipes.optimizer import build_optimizer
from keras_vit.training.tasks import task_of
from keras_vit.variants import arguments_of


class _Unplaced(JaxEngine):
    """The engine on a mesh, whose devices need not be there: it places nothing on them."""

    def __init__(self, config, mesh):
        Engine.__init__(self, config)
        self.mesh = mesh

    def _place(self):
        pass


def lower(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    devices: Sequence[jax.Device],
    mesh: tuple[int, int],
    images: int,
    accumulation_steps: int = 1,
) -> jax.stages.Lowered:
    """Returns the JAX engine's step of a model, lowered for devices; its arrays are never made.

    `devices` are of a topology, or of this machine, `mesh` is (data, fsdp), and `images` are of a
    device and step, divided into `accumulation_steps` micro-batches.
    """
    grid, batch_size = create_mesh(*mesh, devices), images * len(devices)
    config = {"strategy": "sharded", "dataset": "none", "batch_size": batch_size, "total_steps": 1}
    config["accumulation_steps"] = accumulation_steps
    engine = _Unplaced(schema.complete(config), grid)
    engine.build(
        lambda: model,
        lambda _: optimizer,
        lambda _: Objective(task_of(engine.config).losses(engine.config, None)),
        lambda images: images,
    )
    state = [
        _array(variable.shape, variable.dtype, state_sharding(grid, variable.shape))
        for variable in engine.trained
    ]
    sharding, whole = batch_sharding(grid), replicated(grid)
    batch = {
        "image": _array((batch_size, *model.input_shape[1:]), jnp.float32, sharding),
        "label": _array((batch_size, *model.output_shape[1:]), jnp.float32, sharding),
    }
    requests = _array((2,), jnp.float32, whole)
    totals = Totals(_array((4,), jnp.float32, whole), _array((), jnp.int32, whole))
    return engine.function.trace(state, [], batch, requests, totals).lower(
        lowering_platforms=(devices[0].platform,)
    )


def _array(shape, dtype, sharding):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def _devices(topology):
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices


def keras_vit(
    model: str,
    topology: str,
    images: int,
    mesh: tuple[int, int],
    accumulation_steps: int,
    remat: bool,
    dropout_rate: float,
) -> tuple[dict[str, Any], None]:
    """Compiles the JAX engine's own step; `images` are of a chip."""
    keras.config.set_dtype_policy(PRECISION)
    optimizer, devices = build_optimizer(OPTIMIZER), _devices(topology)
    # Within the scope Keras makes no values for variables, which a large model has no room for.
    # Leaving it would make them: the process ends within.
    keras.StatelessScope().__enter__()
    built = create_model(model, num_classes=1000, dropout_rate=dropout_rate, remat=remat)
    return _compiled(lower(built, optimizer, devices, mesh, images, accumulation_steps))


def vit_jax(model: str, topology: str, images: int) -> tuple[dict[str, Any], None]:
    """Compiles the same step of the original's model in Flax, without dropout, data parallel."""
    import optax

    from benchmarks.libraries.jax import SIZES, VisionTransformer, update_of

    devices = _devices(topology)
    mesh = Mesh(np.array(devices), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    divided = NamedSharding(mesh, PartitionSpec("data"))
    arguments = {"num_classes": 1000, "image_size": 224} | arguments_of(model)[1]
    built = VisionTransformer(**{size: arguments[size] for size in SIZES}, dtype=jnp.bfloat16)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(1e-3, b1=0.9, b2=0.999, weight_decay=0.1)
    )
    batch_size, side = images * len(devices), arguments["image_size"]
    batch = (
        _array((batch_size, side, side, 3), jnp.float32, divided),
        _array((batch_size, 1000), jnp.float32, divided),
    )
    weights = jax.eval_shape(built.init, jax.random.key(0), jnp.zeros((1, side, side, 3)))
    state = jax.tree.map(
        lambda leaf: _array(leaf.shape, leaf.dtype, everywhere),
        (weights, jax.eval_shape(optimizer.init, weights)),
    )
    update = update_of(built, optimizer, optax.softmax_cross_entropy)
    return _compiled(update.trace(state, *batch).lower(lowering_platforms=("tpu",)))


def stablehlo(file: str, topology: str, replicas: int) -> tuple[dict[str, Any], None]:
    """Compiles a StableHLO file; reaches into jax, whose version is therefore fixed."""
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    devices: list[Any] = _devices(topology)[:replicas]
    options = compiler.get_compile_options(
        num_replicas=replicas,
        num_partitions=1,
        device_assignment=np.array([[device.id] for device in devices]),
    )
    with mlir.make_ir_context():
        module, copies = ir.Module.parse(pathlib.Path(file).read_bytes()), []

        def collect(operation):
            if operation.operation.name == "mhlo.copy":
                copies.append(operation.operation)
            return ir.WalkResult.ADVANCE

        # An identity that this compiler does not know.
        module.operation.walk(collect)
        for copy in copies:
            copy.result.replace_all_uses_with(copy.operands[0])
            copy.erase()
        chips = xla_client.DeviceList(tuple(devices))
        return _found(lambda: devices[0].client.compile(module, chips, options))


def _compiled(lowered):
    return _found(lambda: lowered.compile().runtime_executable())


def _found(compile):
    """Compiles, and returns what is found of the program, and None."""
    start = time.monotonic()
    try:
        program = compile()
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
