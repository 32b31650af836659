"""`python -m benchmarks COMMAND …`: measures this package, and other libraries beside it."""

import importlib
import sys
from collections.abc import Sequence

from benchmarks.harness import options
from keras_vit.suggestions import did_you_mean
from keras_vit.training.exit_status import exit_process, status_of
from keras_vit.training.io.quiet_start import check_backend, quiet_start

# A command is a function; the file that has it.
COMMANDS = {
    "compare_libraries": "compare_libraries",
    "compare_pipelines": "input",
    "compare_runtimes": "compare_runtimes",
    "dress_rehearsal": "dress_rehearsal",
    "figure_11_throughput": "paper",
    "runtimes": "exports_in_runtimes",
    "startup": "startup",
    "table_6_exaflops": "paper",
    "tpu_compile": "tpu_compile",
    "web_page": "exports_in_runtimes",
}


def main(argv: Sequence[str]) -> int:
    """Runs the command that `argv` names; returns the exit code."""
    name, *arguments = argv or ["--help"]
    if name in ("-h", "--help"):
        print(f"usage: python -m benchmarks COMMAND [options]\n\n{', '.join(COMMANDS)}\n")
        print("python -m benchmarks COMMAND --help explains one.")
        return 0

    def run():
        if name not in COMMANDS:
            hint = did_you_mean(name, COMMANDS)
            expected = f"{hint}Expected a command, one of {', '.join(COMMANDS)}."
            raise ValueError(f"{expected} Received: {name}")
        if not {"-h", "--help"} & {*arguments}:
            check_backend()
        with quiet_start():
            command = getattr(importlib.import_module(f"benchmarks.{COMMANDS[name]}"), name)
        options.run(command, arguments)

    return status_of(run, "--debug" in arguments)


if __name__ == "__main__":
    exit_process(lambda: main(sys.argv[1:]))
