"""What a chip can do, and the least time that it needs for a program's arithmetic and traffic."""

from typing import NamedTuple


class Chip(NamedTuple):
    """What a maker states of a chip.

    Attributes:
        flops: bfloat16 operations per second.
        bandwidth: bytes per second of its main memory.
        memory: bytes.
    """

    flops: float
    bandwidth: float
    memory: int


# Of Google's pages on each generation of Cloud TPUs.
CHIPS = {
    "v4": Chip(275e12, 1228e9, 32 * 2**30),
    "v5e": Chip(197e12, 819e9, 16 * 2**30),
    "v5p": Chip(459e12, 2765e9, 95 * 2**30),
    "v6e": Chip(918e12, 1640e9, 32 * 2**30),
}


def chip_of(topology: str) -> Chip:
    """Returns the chip of a topology, such as "v5e:2x2".

    Raises:
        ValueError: if what its maker states is not known here.
    """
    name = topology.partition(":")[0]
    if name not in CHIPS:
        raise ValueError(f"Expected a topology of {', '.join(CHIPS)}. Received: {topology!r}")
    return CHIPS[name]


def least_seconds(topology: str, flops: float, hbm_bytes: float) -> tuple[float, float]:
    """Returns seconds of arithmetic, and of moving bytes, at a chip's peaks.

    Args:
        topology: such as "v5e:2x2".
        flops: of one chip's program.
        hbm_bytes: that it moves to and from main memory.

    Raises:
        ValueError: if the peaks of the chip are not known here.
    """
    chip = chip_of(topology)
    return flops / chip.flops, hbm_bytes / chip.bandwidth
