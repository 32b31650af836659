"""`python -m export COMMAND`: hands models over, and verifies what was handed over."""

import importlib
import signal
import sys
from collections.abc import Sequence

from training.command_options import as_called
from training.errors import did_you_mean
from training.exit_status import exit_process

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
usage: python -m export COMMAND SOURCE [options]

{commands}

SOURCE is a run directory of `python -m training`, a .keras file, or, with --model=ViT-B/16, the
path or published name of a checkpoint. Images in everything exported are RGB in [0, 1].

  python -m export hub    runs/quickstart --output=modules/digits
  python -m export tflite runs/quickstart --output=digits.tflite --quantization=dynamic
  python -m export tflite runs/quickstart --output=tflite/ --all
  python -m export onnx   runs/quickstart --output=digits.onnx
  python -m export web    runs/quickstart --output=site/
  python -m export npz    runs/quickstart --output=digits.npz
  python -m export verify digits.tflite --against=runs/quickstart
  python -m export inspect digits.tflite --against=runs/quickstart --output=layers.png
  python -m export card   modules/digits --against=runs/quickstart --handle=me/digits/1 --output=out

Each command answers --help.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status: 1 if an artifact misses a threshold."""
    name, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("--help", "-h", "help"):
        lines = (f"  {name:<8}{meaning}" for name, meaning in COMMANDS.items())
        print(as_called(USAGE.format(commands="\n".join(lines))), end="")
        return 0
    if name not in COMMANDS:
        print(
            as_called(
                f"error: Expected a command, one of {', '.join(COMMANDS)}. Received: "
                f"{name or 'none'}.{did_you_mean(name, COMMANDS)} See python -m export --help"
            ),
            file=sys.stderr,
        )
        return 2
    # So that a killed export removes its temporary files as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return importlib.import_module(f"export.commands.{name}").main(options)


if __name__ == "__main__":
    exit_process(main)
