from types import SimpleNamespace

import pytest

from keras_vit.training.errors import UsageError

jax = pytest.importorskip("jax", reason="make test-jax installs it")
mesh = pytest.importorskip("keras_vit.training.engine.jax_mesh", reason="make test-jax installs it")


class Device(SimpleNamespace):
    def __hash__(self):
        return self.id


def devices(count):
    # In another order than that of the processes, as a topology may have it.
    return [Device(id=i, process_index=i % 2, platform="cpu") for i in range(count)]


@pytest.mark.parametrize(
    ("asked", "shape"),
    [((-1, 1), (8, 1)), ((1, -1), (1, 8)), ((2, -1), (2, 4)), ((-1, 2), (4, 2)), ((4, 2), (4, 2))],
)
def test_shape(asked, shape):
    assert mesh.create_mesh(*asked, devices(8)).devices.shape == shape


def test_each_process_holds_consecutive_devices():
    grid = mesh.create_mesh(2, 4, devices(8))
    assert [device.process_index for device in grid.devices.flat] == [0] * 4 + [1] * 4


@pytest.mark.parametrize("asked", [(-1, -1), (0, 1), (3, 1), (-1, 3), (16, 1)])
def test_wrong_shape(asked):
    with pytest.raises(UsageError, match=rf"Received: config.mesh.data={asked[0]}, "):
        mesh.create_mesh(*asked, devices(8))


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((768, 3072), (None, "fsdp")),
        ((3072, 768), ("fsdp", None)),
        ((1, 197, 768), (None, None, "fsdp")),
        ((16, 16, 3, 6), ("fsdp", None, None, None)),
        ((3, 5), (None, None)),
        ((768,), (None,)),
        ((), ()),
    ],
)
def test_state_sharding(shape, spec):
    assert tuple(mesh.state_sharding(mesh.create_mesh(2, 4, devices(8)), shape).spec) == spec
