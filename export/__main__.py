"""`keras-vit export COMMAND`: hands models over, and verifies what was handed over.

And `keras-vit COMMAND`, as pip installs it, which is this or a command of training.
"""

import importlib
import signal
from collections.abc import Sequence
from typing import NoReturn

from keras_vit.training import __main__ as training_command
from keras_vit.training.exit_status import command_line, exit_process, run_command
from keras_vit.version import warn_of_namesake

COMMANDS = {
    "hub": "a TF2 SavedModel for TF-Hub",
    "tflite": "a file for phones, or one for each quantization",
    "onnx": "a file for ONNX Runtime",
    "web": "a page that runs a model in a browser",
    "npz": "a checkpoint in the official layout",
    "verify": "compare an artifact with the model that it came from",
    "inspect": "the error of every layer of a quantized file",
    "card": "texts that publish a module",
}
USAGE = """\
usage: keras-vit export COMMAND SOURCE [options]

{commands}

SOURCE is a run directory of `keras-vit`, a .keras file, or, with --model=ViT-B/16, the
path or published name of a checkpoint. Images in everything exported are RGB in [0, 1].

  keras-vit export hub    runs/quickstart --output=modules/digits
  keras-vit export tflite runs/quickstart --output=digits.tflite --quantization=dynamic
  keras-vit export tflite runs/quickstart --output=tflite/ --all
  keras-vit export onnx   runs/quickstart --output=digits.onnx
  keras-vit export web    runs/quickstart --output=site/
  keras-vit export npz    runs/quickstart --output=digits.npz
  keras-vit export verify digits.tflite --against=runs/quickstart
  keras-vit export inspect digits.tflite --against=runs/quickstart --output=layers.png
  keras-vit export card   modules/digits --against=runs/quickstart --handle=me/digits/1 --output=out

Each command answers --help.
"""

# A terminated export removes its temporary files as an interrupted one does.
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status: 1 if an artifact misses a threshold."""
    lines = (f"  {name:<8}{meaning}" for name, meaning in COMMANDS.items())
    usage = USAGE.format(commands="\n".join(lines))
    return run_command(_main_of, COMMANDS, usage, arguments)


def _main_of(name):
    return getattr(importlib.import_module("keras_vit.export.commands"), name)


def script() -> NoReturn:
    """Runs `keras-vit COMMAND`, and ends the process."""
    warn_of_namesake()
    name, *options = command_line(None)
    if name == "export":
        exit_process(lambda: main(options), _INTERRUPTING)
    exit_process(training_command.main)


if __name__ == "__main__":
    exit_process(main, _INTERRUPTING)
