"""`python -m benchmarks COMMAND …`: measures this package, and other libraries beside it."""

import importlib
import re
import sys
from collections.abc import Sequence

from training.errors import did_you_mean
from training.exit_status import exit_process, status_of
from training.io.quiet_start import check_backend, quiet_start

COMMANDS = {
    "compare_libraries": "inference or training step, against other libraries",
    "compare_exporters": "exported files for phones, against other exporters",
    "dress_rehearsal": "a run of ImageNet's size, killed, resumed and evaluated",
    "figure_11_throughput": "images per second and largest batch of the paper's models",
    "first_batch": "time and memory to the first batch of a set of any size",
    "growth": "time and memory against image size, depth and processes",
    "input_budget": "what the paper's runs ask of storage and of the hosts' cores",
    "input_cores": "images per second of a host against its cores",
    "input_pipeline": "images per second of reading, decoding and augmenting",
    "loop_overhead": "what the training loop adds to its steps",
    "memory": "peak memory of training against the batch, with and without remat",
    "runtimes": "every family of models in every runtime of exported files",
    "slow_store": "both orders of an epoch, from a store that answers late",
    "startup": "import, build, load a checkpoint",
    "table_6_exaflops": "compute of the paper's training runs, or of one model",
    "tpu_compile": "the training step, compiled ahead of time for TPUs",
    "web_page": "loading and answers of web pages, in a real Chromium",
}
ALIASES = {
    "cost": "table_6_exaflops",
    "model": "compare_libraries",
    "tflite": "compare_exporters",
    "throughput": "figure_11_throughput",
}


def usage() -> str:
    """Returns the help text."""
    lines = [f"  {name:22}{what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m benchmarks COMMAND [options]",
            "",
            *lines,
            "",
            "python -m benchmarks COMMAND --help lists the options of one.",
        ]
    )


def main(argv: Sequence[str]) -> int:
    """Runs the command that `argv` names; returns the exit code."""
    if argv[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    received, *options = argv or ["(nothing)"]
    command = ALIASES.get(received, received)
    if command not in COMMANDS:
        hint = did_you_mean(received, [*COMMANDS, *ALIASES])
        print(f"{usage()}\n\nExpected a command. Received: {received}.{hint}", file=sys.stderr)
        return 2
    # Options are spelled with underscores, as everywhere; hyphens work too.
    options = [re.sub(r"^--[\w-]+", _underscores, option) for option in options]
    return status_of(lambda: _measure(command, options))


def _measure(command, options):
    computes = not {"-h", "--help"} & set(options)
    if computes:
        check_backend()
    # Names and sizes of models are looked up here, and Keras begins with TensorFlow.
    with quiet_start():
        module = importlib.import_module(f"benchmarks.{command}")
        if computes:
            importlib.import_module("keras_vit")
    return module.main(options)


def _underscores(match):
    return f"--{match[0][2:].replace('-', '_')}"


if __name__ == "__main__":
    exit_process(lambda: main(sys.argv[1:]))
