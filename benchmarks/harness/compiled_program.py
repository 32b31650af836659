"""What a compiler says of one chip's program: arithmetic, traffic, memory, collectives."""

import re
from collections.abc import Mapping
from typing import Any

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def describe(cost: Mapping[str, float] | list, memory: Any, text: str) -> dict[str, Any]:
    """Returns `flops`, `bytes`, `arguments`, `temporaries` (bytes) and `collectives`.

    Args:
        cost: of the program's `cost_analysis`.
        memory: its memory statistics.
        text: the program, in which collectives are counted by name.
    """
    cost = cost[0] if isinstance(cost, list) else cost
    counts = {name: len(re.findall(rf"= .*\b{name}(?:-start)?\(", text)) for name in COLLECTIVES}
    return {
        "flops": cost["flops"],
        "bytes": cost["bytes accessed"],
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "collectives": {name: count for name, count in counts.items() if count},
    }


def reason(error: Exception) -> str:
    """Returns what a compiler's error says on memory, or how it starts."""
    match = re.search(r"Used [\d.]+\w of [\d.]+\w hbm", str(error))
    return f"out of memory: {match[0]}" if match else str(error).split("\n", 1)[0][:120]
