"""Compiles a training step of the original's model in Flax for a TPU topology and prints JSON.

`flax_compiler.py MODEL TOPOLOGY IMAGES_PER_CHIP PRECISION`. Data parallel, without dropout, AdamW
and clipping by optax: what `jax_compiler.py` compiles of ours with a dropout rate of 0.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.harness.jax_compiler import measure
from benchmarks.libraries.jax import SIZES, VisionTransformer, update_of
from keras_vit.variants import arguments_of


def lower(name: str, topology: str, images: int, precision: str) -> jax.stages.Lowered:
    """Returns the step, lowered for a topology.

    Args:
        name: of a Vision Transformer.
        topology: such as "v5e:2x2".
        images: per chip and step.
        precision: "float32" or "mixed_bfloat16".
    """
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = Mesh(np.array(devices), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    divided = NamedSharding(mesh, PartitionSpec("data"))
    dtype = jnp.bfloat16 if precision == "mixed_bfloat16" else jnp.dtype(precision)
    arguments = {"num_classes": 1000, "image_size": 224} | arguments_of(name)[1]
    model = VisionTransformer(**{size: arguments[size] for size in SIZES}, dtype=dtype)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(1e-3, b1=0.9, b2=0.999, weight_decay=0.1)
    )

    def array(shape, dtype, sharding):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    batch_size, side = images * len(devices), arguments["image_size"]
    batch = (
        array((batch_size, side, side, 3), jnp.float32, divided),
        array((batch_size, 1000), jnp.float32, divided),
    )
    weights = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, side, side, 3)))
    state = jax.tree.map(
        lambda leaf: array(leaf.shape, leaf.dtype, everywhere),
        (weights, jax.eval_shape(optimizer.init, weights)),
    )

    step = update_of(model, optimizer, optax.softmax_cross_entropy)
    return step.trace(state, *batch).lower(lowering_platforms=("tpu",))


def main(name: str, topology: str, images: str, precision: str) -> None:
    """Compiles the step, and prints what `measure` found as JSON."""
    print(json.dumps(measure(lower(name, topology, int(images), precision))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
