"""The options that several benchmarks have, with one spelling and one meaning."""

from typing import Any

from keras_vit.training.command_line.options import CommandParser, list_of

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
