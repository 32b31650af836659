"""An order for storage that is read in large pieces: of blocks, and of examples within windows.

An epoch's blocks of neighboring examples are permuted. A window takes the next few hundred of them
for each host, and each host's share of the window's batches is a permutation of the examples in its
blocks. So a host reads whole blocks, holds two windows, and reads nothing for the others. It is a
function of (seed, number of hosts, position), and a run begins at any of them.

The last window of an epoch is as large as whole batches and whole blocks allow. The examples that
are left, fewer than a batch if a host's share of it is whole blocks, follow in a permutation of
their own that all hosts share; those that fill no block are among them.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from training.data.feistel_permutation import permute

# Neighboring photos enough for a read of megabytes, and few enough for many to mix.
BLOCK = 16
# Examples of a host in a window: as encoded photos of ImageNet, 0.9 GB.
_WINDOW = 8192


class Windows(NamedTuple):
    """How an epoch is divided.

    Attributes:
        hosts: number of hosts.
        batch_size: of all hosts together.
        part: examples of a host in a window; those of several hosts are whole batches.
        whole: number of such windows.
        last_part: examples of a host in the last window, or 0 without one.
    """

    hosts: int
    batch_size: int
    part: int
    whole: int
    last_part: int

    @property
    def size(self) -> int:
        """Examples of a window of all hosts."""
        return self.part * self.hosts


def windows_of(num_examples: int, batch_size: int, hosts: int) -> Windows:
    """Returns how epochs are divided, so that hosts have equal shares of each window.

    Args:
        num_examples: number of examples.
        batch_size: of all hosts together.
        hosts: divides `batch_size`.
    """
    # A host alone needs no whole batches, so its order is the same for any batch size.
    unit = BLOCK if hosts == 1 else math.lcm(batch_size // hosts, BLOCK)
    part = max(1, _WINDOW // unit) * unit
    whole, left = divmod(num_examples, part * hosts)
    return Windows(hosts, batch_size, part, whole, left // (unit * hosts) * unit)


def examples_at(
    positions: tf.Tensor, *, num_examples: int, seed: int, windows: Windows
) -> tf.Tensor:
    """Returns the examples at `positions` of a run, int64 (n,).

    Args:
        positions: int64 (n,), at least 0.
        num_examples: number of examples.
        seed: any integer.
        windows: of `windows_of`.
    """
    epoch, places = positions // num_examples, positions % num_examples
    whole = windows.whole * windows.size
    shared = whole + windows.last_part * windows.hosts
    mixed = places
    for begin, end, part in ((0, whole, windows.part), (whole, shared, windows.last_part)):
        if begin < end:
            inside = (places >= begin) & (places < end)
            clipped = positions + tf.clip_by_value(places, begin, end - 1) - places
            of_windows = _in_window(clipped, num_examples, begin, part, seed, windows)
            mixed = tf.where(inside, of_windows, mixed)
    if shared < num_examples:
        left = permute(
            tf.maximum(places - shared, 0),
            epoch=_key(epoch, windows.whole + 1, 0, windows),
            num_examples=num_examples - shared,
            seed=~seed,
        )
        mixed = tf.where(places < shared, mixed, shared + left)
    blocks = num_examples // BLOCK
    if not blocks:
        return mixed
    place = tf.minimum(mixed // BLOCK, blocks - 1)
    block = permute(place, epoch=epoch, num_examples=blocks, seed=seed)
    return tf.where(mixed < blocks * BLOCK, block * BLOCK + mixed % BLOCK, mixed)


def _in_window(positions, num_examples, begin, part, seed, windows):
    """Returns the places in the epoch of windows from `begin` on, permuted within hosts' parts."""
    epoch, places = positions // num_examples, positions % num_examples
    number = (places - begin) // (part * windows.hosts)
    first = begin + number * part * windows.hosts
    share = windows.batch_size // windows.hosts
    host = positions % windows.batch_size // share
    # Windows are whole batches, wherever in a batch they begin: so many positions of this one, up
    # to each, are of its host.
    rank = _count(positions, host, share, windows)
    rank -= _count(positions - places + first, host, share, windows)
    key = _key(epoch, begin // windows.size + number, host, windows)
    return first + host * part + permute(rank, epoch=key, num_examples=part, seed=~seed)


def _key(epoch, window, host, windows):
    """Returns a number of its own for each part of each window."""
    return (epoch * (windows.whole + 2) + window) * windows.hosts + host


def _count(positions, host, share, windows):
    """Returns how many of the positions below these are of the host."""
    batches, slot = positions // windows.batch_size, positions % windows.batch_size
    return batches * share + tf.clip_by_value(slot - host * share, 0, share)
