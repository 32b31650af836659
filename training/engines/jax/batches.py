"""The input on its way to the devices: each process sends its part, ahead of its use."""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from training.engines.jax.train_step import Batch


def to_devices(batch: Mapping[str, np.ndarray], sharding: NamedSharding) -> Batch:
    """Returns this process's part of a batch as global arrays, divided along the first axis."""
    return {
        key: jax.make_array_from_process_local_data(sharding, np.asarray(array))
        for key, array in batch.items()
    }


class DeviceBatches(Iterator[Batch]):
    """Batches on the devices, some of them sent before they are asked for.

    Args:
        dataset: of this process's parts of the batches, dicts of arrays; a `tf.data.Dataset`.
        sharding: of a global batch.
        ahead: number of batches that `fill` keeps on the devices, at least 1.
    """

    def __init__(self, dataset: Any, sharding: NamedSharding, ahead: int):
        self._host = dataset.as_numpy_iterator()
        self._sharding = sharding
        self._ahead = ahead
        self._sent: collections.deque[Batch] = collections.deque()
        self._failure: Exception | None = None

    def fill(self) -> None:
        """Sends batches, until `ahead` of them wait there.

        What goes wrong with one is raised where it is asked for, which it may never be.
        """
        try:
            while not self._failure and len(self._sent) < self._ahead:
                self._sent.append(to_devices(next(self._host), self._sharding))
        except Exception as error:
            self._failure = error

    def __next__(self) -> Batch:
        if not self._sent:
            self.fill()
        if self._sent:
            return self._sent.popleft()
        assert self._failure
        raise self._failure
