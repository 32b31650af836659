"""Where and with what a table was measured."""

import importlib.metadata
import os
import platform

PACKAGES = ("tensorflow", "keras", "keras-hub", "torch", "timm", "jax", "flax")


def processor():
    """Returns the processor's name, and the matrix extensions that matter here."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return platform.processor() or platform.machine()
    fields = {name.strip(): value.strip() for name, value in lines.items()}
    flags = fields.get("flags", "").split()
    known = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    extensions = ", ".join(flag for flag in known if flag in flags)
    return f"{fields.get('model name', platform.machine())} ({extensions or 'no AVX2'})"


def versions():
    """Returns "name version" of every package that takes part and is installed."""
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def describe(threads):
    """Returns a line of Markdown on the machine and the packages."""
    load = os.getloadavg()[0]
    return (
        f"{processor()}, {threads} of {os.cpu_count()} cores, load average at the start "
        f"{load:.1f}; {versions()}."
    )
