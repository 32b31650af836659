"""The mesh of devices of the JAX engine: how state, batches and activations are divided over it.

The mesh has two axes. A batch is divided over both; state is divided over `fsdp` and repeated
over `data`. Data parallelism is `data=-1, fsdp=1`; fully sharded state is `data=1, fsdp=-1`.
"""

from collections.abc import Callable, Sequence

import jax
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..errors import UsageError

AXES = ("data", "fsdp")


def create_mesh(data: int, fsdp: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns the mesh of shape (data, fsdp), by default of all devices of all processes.

    A state is divided over `fsdp` devices, and `data` groups of them hold a whole one each; -1 is
    what the other leaves. The devices of a process stand together, in the order of the processes,
    so that each process holds consecutive examples of every batch. Raises `UsageError` if that is
    not the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    try:
        return Mesh(np.array(ordered).reshape(data, fsdp), AXES)
    except ValueError as error:
        raise UsageError(
            "config.mesh: expected positive numbers, or -1 in one of the axes for what is left, "
            f"with data x fsdp the number of devices, {len(devices)}. "
            f"Received: config.mesh.data={data}, config.mesh.fsdp={fsdp}."
        ) from error


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the layout of an array that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the layout of arrays whose first axis counts examples."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def state_sharding(mesh: Mesh, shape: Sequence[int]) -> NamedSharding:
    """Returns the layout of a weight, a moment or an average: its largest axis that divides.

    Scalars and vectors stay whole: they are a thousandth of a model, and gathering each would
    take another message.
    """
    parts = mesh.shape["fsdp"]
    spec: list[str | None] = [None] * len(shape)
    divisible = [axis for axis, size in enumerate(shape) if size % parts == 0]
    if parts > 1 and len(shape) > 1 and divisible:
        spec[max(divisible, key=lambda axis: shape[axis])] = "fsdp"
    return NamedSharding(mesh, PartitionSpec(*spec))


def gather_on(mesh: Mesh) -> Callable[[jax.Array], jax.Array]:
    """Returns the function that makes a sharded weight whole where it is used.

    Its gradient is laid out as the weight. Told only how weights are stored, the partitioner
    would divide the products of a few rows along the weights instead, and exchange activations.
    """

    @jax.custom_vjp
    def gather(weight):
        return jax.lax.with_sharding_constraint(weight, replicated(mesh))

    def scatter(_, gradient):
        sharding = state_sharding(mesh, gradient.shape)
        return (jax.lax.with_sharding_constraint(gradient, sharding),)

    gather.defvjp(lambda weight: (gather(weight), None), scatter)
    return gather


class ActivationLayout:
    """The layout of activations, which Keras takes for its distribution while a step is traced.

    Left to itself, the partitioner follows the layout of sharded weights into the activations
    and exchanges activations, or whole arrays, where two of them meet. Keras asks the
    distribution in force for the layout of every layer's output, and each is laid out as a batch.
    """

    def __init__(self, mesh: Mesh):
        self._layout = batch_sharding(mesh)

    def get_tensor_layout(self, path: str) -> NamedSharding:
        """Returns the layout of a layer's output, which is a batch's."""
        return self._layout

    def get_variable_layout(self, variable: keras.Variable) -> None:
        """Leaves variables as they are laid out already."""
