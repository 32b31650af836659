"""The least time that a chip needs for a program: of its arithmetic, and of its traffic."""

from typing import NamedTuple


class Chip(NamedTuple):
    """What a maker states of a chip.

    Attributes:
        flops: bfloat16 operations per second.
        bandwidth: bytes per second of its main memory.
    """

    flops: float
    bandwidth: float


# Of Google's pages on each generation of Cloud TPUs.
CHIPS = {
    "v4": Chip(275e12, 1228e9),
    "v5e": Chip(197e12, 819e9),
    "v5p": Chip(459e12, 2765e9),
    "v6e": Chip(918e12, 1640e9),
}


def least_seconds(topology: str, flops: float, hbm_bytes: float) -> tuple[float, float]:
    """Returns seconds of arithmetic, and of moving bytes, at a chip's peaks.

    Args:
        topology: such as "v5e:2x2".
        flops: of one chip's program.
        hbm_bytes: that it moves to and from main memory.

    Raises:
        ValueError: if the peaks of the chip are not known here.
    """
    name = topology.partition(":")[0]
    if name not in CHIPS:
        raise ValueError(f"Expected a topology of {', '.join(CHIPS)}. Received: {topology!r}")
    return flops / CHIPS[name].flops, hbm_bytes / CHIPS[name].bandwidth
