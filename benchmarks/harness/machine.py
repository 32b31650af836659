"""Where and with what a table was measured, and what this process took of it."""

import collections
import os
import platform
import resource
from typing import Any

from benchmarks.harness.process import Process

PACKAGES = ("tensorflow", "keras", "keras-hub", "torch", "timm", "jax", "flax")
EXTENSIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def processor() -> str:
    """Returns the processor's name, and the matrix extensions that matter here."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return platform.processor() or platform.machine()
    fields = {name.strip(): value.strip() for name, value in lines.items()}
    found = [name for name in EXTENSIONS if name in fields.get("flags", "").split()]
    return f"{fields.get('model name', platform.machine())} ({', '.join(found) or 'no AVX2'})"


def versions() -> str:
    """Returns "name version" of every package that takes part and is installed."""
    import importlib.metadata

    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def accelerators() -> dict[str, int]:
    """Returns how many devices of each kind Keras computes on under JAX, CPUs apart."""
    if os.environ.get("KERAS_BACKEND") != "jax":
        return {}
    # In a process of its own: one that looks for devices keeps them, or memory of theirs.
    with Process(f"{__name__}:count_devices", {}) as process:
        return process.facts["devices"]


def count_devices() -> tuple[dict[str, Any], None]:
    """Counts this process's `devices` of JAX by their kind, CPUs apart."""
    import jax

    found = [each.device_kind for each in jax.local_devices() if each.platform != "cpu"]
    return {"devices": collections.Counter(found)}, None


def describe(threads: int | None = None) -> str:
    """Returns a line on the machine, the cores that are used (all of them), and the packages."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    devices = "".join(f", {count} × {kind}" for kind, count in accelerators().items())
    return (
        f"{processor()}, {threads or cores} of {cores} cores{devices}, load average at the start "
        f"{load:.1f}; {versions()}."
    )


def peak_memory() -> int:
    """Returns the most memory that this process has held, in bytes."""
    # On Linux `ru_maxrss` would count what the parent held when it started this process.
    return peak_memory_of("self") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peak_memory_of(process: int | str) -> int:
    """Returns the most memory that a process has held, in bytes: 0 once it is gone, or off Linux.

    Args:
        process: its number, or "self".
    """
    try:
        with open(f"/proc/{process}/status", encoding="utf-8") as file:
            peaks = [line for line in file if line.startswith("VmHWM:")]
    except OSError:
        return 0
    return int(peaks[0].split()[1]) * 1024 if peaks else 0
