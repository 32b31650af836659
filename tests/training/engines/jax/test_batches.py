import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="make test-jax installs it")
batches = pytest.importorskip("training.engines.jax.batches", reason="make test-jax installs it")


class Failing:
    """Two batches, and a third that cannot be read."""

    def as_numpy_iterator(self):
        for value in range(2):
            yield {"image": np.full(2, value)}
        raise OSError("damaged")


def test_a_damaged_batch_fails_only_where_it_is_asked_for():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    sent = batches.DeviceBatches(Failing(), sharding, ahead=4)
    for value in range(2):
        sent.fill()
        np.testing.assert_array_equal(next(sent)["image"], np.full(2, value))
    sent.fill()
    for _ in range(2):
        with pytest.raises(OSError, match="damaged"):
            next(sent)
