"""`keras-vit COMMAND`, the same as `python -m keras_vit COMMAND`; options alone train."""

import signal
from collections.abc import Sequence
from typing import NoReturn

from keras_vit.training.command_line.exit_status import exit_process
from keras_vit.training.command_line.run_command import Commands, name_and_options
from keras_vit.version import warn_of_namesake

EXPORT = Commands(
    "keras-vit export",
    "keras_vit.export.commands",
    {
        "hub": "a TF2 SavedModel for TF-Hub",
        "tflite": "a file for phones, or one for each quantization",
        "onnx": "a file for ONNX Runtime",
        "web": "a page that runs a model in a browser",
        "hugging_face": "a folder for transformers or timm, and the Hub",
        "npz": "a checkpoint in the official layout",
        "verify": "compare an artifact with the model that it came from",
        "inspect": "the error of every layer of a quantized file",
        "card": "texts that publish a module",
    },
    """\
usage: keras-vit export COMMAND SOURCE [options]

{table}

SOURCE is a run directory of `keras-vit`, a .keras file, or, with --model=ViT-B/16, the
path or published name of a checkpoint. Images in everything exported are RGB in [0, 1].

  keras-vit export hub    runs/quickstart --output=modules/digits
  keras-vit export tflite runs/quickstart --output=digits.tflite --quantization=dynamic
  keras-vit export verify digits.tflite --against=runs/quickstart

Each command answers --help, with examples.
""",
)
KERAS_VIT = Commands(
    "keras-vit",
    "keras_vit.training.commands",
    {
        "train": "train a model, or resume a run (the default: the word may be left out)",
        "predict": "what is on a photo, by name and probability",
        "evaluate": "accuracy on every image of a split",
        "few_shot": "linear few-shot accuracy of a frozen model",
        "sweep": "the paper's fine-tuning protocol on one data set",
        "vtab": "the 19 tasks of VTAB-1k",
        "ablation": "the paper's ablations: runs, tables and figures",
        "similar": "photos that look alike, and near-duplicates",
        "analyze": "what a trained model looks at, as pictures and tables",
        "budget": "what the paper's experiments cost to run",
        "report": "write the page of a finished run again",
        "compare": "several runs on one page: differences, results, curves",
        "data": "list, check and prepare data sets",
    },
    """\
usage: keras-vit COMMAND [options]
       keras-vit --config=FILE[:ARGUMENT] --workdir=DIR

{table}

Each command answers --help. `keras-vit --version` shows the version, and `keras-vit --completion
bash` or `zsh` writes a script by which a shell completes commands, options and config keys.
""",
    groups={"export": ("hand a model over, and verify what was handed over", EXPORT)},
    default="train",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status of the process."""
    return KERAS_VIT.main(arguments)


def script() -> NoReturn:
    """Runs `keras-vit COMMAND`, and ends the process."""
    warn_of_namesake()
    # A terminated export removes its temporary files as an interrupted one does. A run that trains
    # handles SIGTERM itself.
    terminated = name_and_options(None)[0] == "export"
    exit_process(main, (signal.SIGINT, signal.SIGTERM) if terminated else (signal.SIGINT,))


if __name__ == "__main__":
    script()
