"""Adds options that benchmarks share, and prints the table of a measurement and its machine."""

import collections
import contextlib
import itertools
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

from keras_vit.training.command_line.options import CommandParser, list_of
from keras_vit.training.io.printed_table import Table

PACKAGES = ("tensorflow", "keras", "keras-hub", "torch", "timm", "jax", "flax")
EXTENSIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")

_MEANINGS = {
    "batch_size": "images per step",
    "batches": "measured in every turn",
    "image_size": "in pixels",
    "image_sizes": "in pixels",
    "model": "a name, for example ViT-Ti/16",
    "models": "names, for example ViT-Ti/16",
    "rounds": "turns of each; medians over them are printed",
    "seconds": "length of a turn",
    "threads": "processor cores to use; 0: all",
}


def add_shared(parser: CommandParser, **defaults: Any) -> None:
    """Adds shared options with their defaults; of a tuple, values separated by commas."""
    for name, default in defaults.items():
        several = isinstance(default, tuple)
        kind = list_of(type(default[0])) if several else type(default)
        parser.add_argument(f"--{name}", type=kind, default=default, help=_MEANINGS[name])


def show(rows: Iterable[Mapping[str, object]], title: str = "") -> None:
    """Prints rows of {column: cell} as Markdown; a cell that a row does not have is blank."""
    rows = list(rows)
    columns = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    cells = [[row.get(each, "") for each in columns] for row in rows]
    print(Table(columns, cells, title).markdown())


def machine(threads: int = 0) -> str:
    """Returns a line on the machine, the cores that are used (0: all), and the packages."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    devices = "".join(f", {count} × {kind}" for kind, count in gpus().items())
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    return (
        f"{_processor()}, {threads or cores} of {cores} cores{devices}, load average at the start "
        f"{load:.1f}; {', '.join(versions)}."
    )


def _processor():
    """Returns the processor's name, and those of its extensions that matter here."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(map(str.strip, line.split(":", 1)) for line in text.splitlines() if ":" in line)
    found = [name for name in EXTENSIONS if name in fields.get("flags", "").split()]
    return f"{fields.get('model name', platform.machine())} ({', '.join(found) or 'no AVX2'})"


def gpus() -> dict[str, int]:
    """Returns {name: number} of NVIDIA's GPUs on this machine."""
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    return collections.Counter(names.splitlines())
