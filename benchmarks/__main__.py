"""`python -m benchmarks COMMAND …`: measures this package, and its peers beside it."""

import importlib
import os
import sys

COMMANDS = {
    "model": "inference or training step, against other libraries",
    "memory": "peak memory of training against the batch, with and without remat",
    "growth": "time and memory against image size, depth and processes",
    "startup": "import, build, load a checkpoint",
    "cost": "cost of a training run",
    "throughput": "images per second of a whole training run",
    "input_pipeline": "images per second of reading, decoding and augmenting",
    "loop_overhead": "what the training loop adds to its steps",
    "tpu_compile": "the training step, compiled ahead of time for TPUs",
    "tflite": "exported models, against other exporters",
}


def usage():
    lines = [f"  {name:16}{what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m benchmarks COMMAND [options]",
            "",
            *lines,
            "",
            "python -m benchmarks COMMAND --help lists the options of one.",
        ]
    )


def main(argv):
    """Runs the command that `argv` names; returns the exit code."""
    if argv[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    if not argv or argv[0] not in COMMANDS:
        received = argv[0] if argv else "(nothing)"
        print(f"{usage()}\n\nExpected a command. Received: {received}", file=sys.stderr)
        return 2
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return importlib.import_module(f"benchmarks.{argv[0]}").main(argv[1:]) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
