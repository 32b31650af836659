"""What the commands of evaluation share: options, errors, where a model's images come from."""

from __future__ import annotations

import argparse
import sys
import typing
from collections.abc import Callable, Sequence

from training.errors import TrainingError

if typing.TYPE_CHECKING:
    from training.io.model_source import LoadedModel


def run(body: Callable[[], None]) -> int:
    """Calls `body` and returns the exit status; an expected failure prints one line."""
    try:
        body()
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """Returns a parser for `python -m MODULE`, whose options are written out in full."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which model is evaluated."""
    parser.add_argument(
        "--model",
        required=True,
        help="run directory, .keras file, directory of a TF-Hub module, or with --checkpoint a "
        "name such as ViT-B/16",
    )
    parser.add_argument("--checkpoint", help="file or published name of the weights of --model")
    parser.add_argument("--image_size", type=int, help="with --checkpoint; default 224")


def load(
    options: argparse.Namespace, *, layer: str | None = None, num_classes: int | None = None
) -> LoadedModel:
    """Returns the model that the options of `add_model` name.

    Args:
        options: parsed.
        layer: as in `models.load_model`.
        num_classes: of the head of a checkpoint; None leaves it out.
    """
    from training.io import model_source

    if not options.checkpoint:
        return model_source.load_model(options.model, layer=layer)
    return model_source.from_checkpoint(
        options.model,
        options.checkpoint,
        num_classes=num_classes,
        image_size=options.image_size,
        layer=layer,
    )


def list_of(make: Callable[[str], object]) -> Callable[[str], list]:
    """Returns the type of an option that takes values separated by commas."""

    def convert(text: str) -> list:
        return [make(part) for part in text.split(",")]

    convert.__name__ = f"list of {make.__name__}"
    return convert


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns (`--config.KEY=VALUE` arguments, all others)."""
    overrides = [text for text in arguments if text.lstrip("-").startswith("config.")]
    return overrides, [text for text in arguments if text not in overrides]


def value_range(image_range: tuple[float, float]) -> str:
    """Returns the preprocessing that scales images to what a model takes."""
    low, high = image_range
    return f"value_range({low:g},{high:g})"
