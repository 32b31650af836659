"""The memory that this process may still take."""

import pathlib

_MEMINFO = pathlib.Path("/proc/meminfo")
_CGROUP = pathlib.Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Returns the bytes of memory that are free for this process, or None off Linux.

    The least of what the machine has and what its container may take (control groups, version 2).
    """
    if not _MEMINFO.is_file():
        return None
    free = 1024 * _fields(_MEMINFO)["MemAvailable:"]
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        held = int((_CGROUP / "memory.current").read_text())
        # Files that the system keeps in memory make room for others.
        held -= _fields(_CGROUP / "memory.stat")["inactive_file"]
    except (OSError, ValueError):
        return free  # no container, or one without a limit ("max")
    return min(free, limit - held)


def _fields(file: pathlib.Path) -> dict[str, int]:
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows}
