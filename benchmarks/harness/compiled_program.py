"""Reads what a compiler says of one chip's program: its collectives, and why it refuses one."""

import re

# Of the steps that are compiled.
PRECISION = "mixed_bfloat16"
OPTIMIZER = {"total_steps": 1000, "warmup_steps": 10, "weight_decay": 0.1, "clip_norm": 1.0}

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
