"""Reads from a compiler one chip's program: arithmetic, traffic, memory, collectives."""

import math
import re
from typing import NamedTuple

# The optimizer of the steps that are compiled.
OPTIMIZER = {"total_steps": 1000, "warmup_steps": 10, "weight_decay": 0.1, "clip_norm": 1.0}


class Chip(NamedTuple):
    """The figures that a maker states of a chip.

    Attributes:
        flops: bfloat16 operations per second.
        bandwidth: bytes per second of its main memory.
    """

    flops: float
    bandwidth: float


# From Google's pages on each generation of Cloud TPUs.
CHIPS = {
    "v4": Chip(275e12, 1228e9),
    "v5e": Chip(197e12, 819e9),
    "v5p": Chip(459e12, 2765e9),
    "v6e": Chip(918e12, 1640e9),
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


_COLLECTIVE = re.compile(
    r"= .* (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)


def collectives(text: str) -> dict[str, int]:
    """Returns how many collectives of each kind a program has.

    A TPU's program may repeat one in several fusions, under the same channel, and writes a
    reduce-scatter as a fusion around an all-reduce.
    """
    channels: dict[str, set[str]] = {}
    computation = ""
    for line in text.splitlines():
        if line.endswith("{"):
            computation = line
        elif found := _COLLECTIVE.search(line):
            name = "reduce-scatter" if "all-reduce-scatter" in computation else found[1]
            channel = re.search(r"channel_id=\d+", line)
            channels.setdefault(name, set()).add(channel[0] if channel else line)
    return {name: len(found) for name, found in sorted(channels.items())}


def rematerialized(log: str) -> int:
    """Returns how often the partitioner found no way between two layouts but whole arrays.

    Args:
        log: what a process that compiled wrote to stderr, with TF_CPP_MIN_LOG_LEVEL of 0 or 1.
    """
    return log.count("Involuntary full rematerialization")


# Of a compiler that is through, and of one that does not begin.
_REFUSAL = re.compile(
    r"Used ([\d.]+\w) of ([\d.]+\w) hbm"
    r"|HLO temporaries \(([\d.]+\w)\) exceeds available HBM \(([\d.]+\w)\)"
)


def reason(error: Exception) -> str:
    """Returns what a compiler's error says on memory, or how it starts."""
    match = _REFUSAL.search(str(error))
    if not match:
        return str(error).split("\n", 1)[0][:120]
    used, available = filter(None, match.groups())
    return f"out of memory: used {used} of {available}"


_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\](\{[^}]*\})?")
_COMPUTATION = re.compile(r"^(?:ENTRY )?(%[\w.\-]+) \(.*\{\n((?:.*\n)*?)\}", re.MULTILINE)
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?(%[\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)")
# These move nothing, or nothing but what the computations move that they call.
_CALLS = ("while", "conditional", "call")
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "opt-barrier", *_CALLS)


def hbm_bytes(text: str) -> int:
    """Returns the bytes that one run of a TPU's program moves to and from the main memory.

    The compiler's own count takes every operand of every instruction, also those that it keeps in
    the memory on the chip (memory space 1 in layouts), which costs next to nothing.

    Loops count once, and so does every branch. The padding of tiles is not counted, and an update
    in place counts as a copy, so this is an estimate.

    Args:
        text: of the compiled program.
    """
    bodies = {name: body.splitlines() for name, body in _COMPUTATION.findall(text)}
    # The computations that are not within an instruction: the entry's and those of loops.
    names = re.findall(r"^ENTRY (%[\w.\-]+)", text, re.MULTILINE)
    for name in names:
        for line in bodies[name]:
            if re.search(rf" ({'|'.join(_CALLS)})\(", line):
                called = re.findall(r"(?:body|to_apply|computation)=(%[\w.\-]+)", line)
                branches = re.findall(r"branch_computations=\{(.*?)\}", line)
                called += re.findall(r"%[\w.\-]+", "".join(branches))
                names += [each for each in called if each not in names]
    return sum(_moved(bodies[name]) for name in names)


def _moved(lines):
    shapes, moved = {}, 0
    for line in lines:
        if not (found := _INSTRUCTION.match(line)):
            continue
        name, shape, operation, operands = found.groups()
        shapes[name] = shape
        # Waiting for a transfer, which is counted where it starts.
        if operation in _FREE or operation.endswith("-done"):
            continue
        if operation in ("slice-start", "dynamic-slice-start"):
            source, target = [array for array in _ARRAY.findall(shape) if array[1]][:2]
            moved += sum(_size(*target[:2]) for array in (source, target) if _in_hbm(array))
        elif operation.endswith("-start") and operation != "all-reduce-start":
            # Its shape names what it reads and what it writes.
            moved += _hbm(shape)
        else:
            read = re.findall(r"%[\w.\-]+", operands)
            moved += _hbm(shape) + sum(_hbm(shapes.get(each, "")) for each in read)
    return moved


def _hbm(shape):
    return sum(_size(*array[:2]) for array in _ARRAY.findall(shape) if _in_hbm(array))


def _in_hbm(array):
    return "S(" not in array[2]


def _size(kind, dimensions):
    bits = re.search(r"\d+", kind) or ["8"]  # of bf16, s32, f8e4m3fn, …; those of pred are 8
    return int(bits[0]) // 8 * math.prod(int(size) for size in dimensions.split(",") if size)
