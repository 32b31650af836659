"""What a TPU's program moves to and from the chip's main memory, read from the program's text.

The compiler's own count of bytes takes every operand of every instruction, also those that it
keeps in the memory on the chip (memory space 1 in layouts), which costs next to nothing.
"""

import math
import re

_BYTES = {
    1: ("pred", "s8", "u8", "f8e4m3fn", "f8e5m2"),
    2: ("s16", "u16", "bf16", "f16"),
    4: ("s32", "u32", "f32"),
    8: ("s64", "u64", "f64"),
}
_ITEM = {kind: size for size, kinds in _BYTES.items() for kind in kinds}
_ARRAY = re.compile(rf"\b({'|'.join(_ITEM)})\[([\d,]*)\](\{{[^}}]*\}})?")
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?(%[\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)")
_BRANCHES = re.compile(r"branch_computations=\{(.*?)\}")
# What moves nothing, or nothing but what the computations do that it calls.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "opt-barrier"}
_FREE |= {"while", "conditional", "call"}


def hbm_bytes(text: str) -> int:
    """Returns the bytes that one run of a program moves to and from main memory.

    Loops count once, and so does every branch. The padding of tiles is not counted, and an update
    in place counts as a copy, so this is an estimate.

    Args:
        text: of the compiled program.
    """
    computations = _computations(text)
    return sum(_moved(computations[name]) for name in _run(text, computations))


def _computations(text):
    """Returns {name: lines}."""
    found, lines = {}, []
    for line in text.splitlines():
        if line.endswith("{") and (start := re.match(r"(?:ENTRY )?(%[\w.\-]+) \(", line)):
            lines = found[start[1]] = []
        else:
            lines.append(line)
    return found


def _run(text, computations):
    """Returns the computations that are not within an instruction: the entry's and of loops."""
    entry = re.search(r"^ENTRY (%[\w.\-]+)", text, re.MULTILINE)
    names = [entry[1]] if entry else []
    for name in names:
        for line in computations[name]:
            if re.search(r" (while|conditional|call)\(", line):
                called = re.findall(r"(?:body|to_apply|computation)=(%[\w.\-]+)", line)
                called += re.findall(r"%[\w.\-]+", "".join(_BRANCHES.findall(line)))
                names += [each for each in called if each not in names]
    return names


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
    return _ITEM[kind] * math.prod(int(size) for size in dimensions.split(",") if size)
