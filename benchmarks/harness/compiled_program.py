"""What a compiler says of one chip's program: arithmetic, traffic, memory, collectives."""

import re
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.hbm_traffic import hbm_bytes

_COLLECTIVE = re.compile(
    r"= .* (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
# Where the compiler is through, and where it does not begin.
_REFUSAL = re.compile(
    r"Used ([\d.]+\w) of ([\d.]+\w) hbm"
    r"|HLO temporaries \(([\d.]+\w)\) exceeds available HBM \(([\d.]+\w)\)"
)


def describe(cost: Mapping[str, float] | list, memory: Any, text: str) -> dict[str, Any]:
    """Returns `flops`, `bytes`, `hbm_bytes`, `arguments`, `temporaries` and `collectives`.

    Args:
        cost: of the program's `cost_analysis`.
        memory: its memory statistics.
        text: the program, in which collectives are counted by name.
    """
    cost = cost[0] if isinstance(cost, list) else cost
    return {
        "flops": cost["flops"],
        "bytes": cost["bytes accessed"],
        "hbm_bytes": hbm_bytes(text),
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "collectives": collectives(text),
    }


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


def reason(error: Exception) -> str:
    """Returns what a compiler's error says on memory, or how it starts."""
    match = _REFUSAL.search(str(error))
    if not match:
        return str(error).split("\n", 1)[0][:120]
    used, available = filter(None, match.groups())
    return f"out of memory: used {used} of {available}"
