"""The package's configs: files with `get_config(ARGUMENT)`. Here: reading their arguments."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from keras_vit.name_suggestions import did_you_mean

from ..config.overrides import parse_value
from ..errors import UsageError


def parse_argument(
    text: str, file: str, defaults: Mapping[str, Any], datasets: Collection[str] = ()
) -> tuple[str, str, dict[str, Any]]:
    """Returns (MODEL, DATASET, {KEY: value}) of `--config=FILE:MODEL,DATASET[,KEY=VALUE…]`.

    `text` is what follows the colon, `file` and `defaults` are as in `parse_options`, which also
    says what is raised, and `datasets` the names that DATASET can be; empty for any.
    """
    model, _, others = text.partition(",")
    dataset, *rest = (part.strip() for part in others.split(","))
    if not model.strip() or not dataset or (datasets and dataset not in datasets):
        known = f" with DATASET one of {', '.join(datasets)}" if datasets else ""
        example = next(iter(datasets), "cifar10")
        raise UsageError(
            f"Expected {file}:MODEL,DATASET{known}, for example {file}:ViT-B/16,{example}. "
            f"Received: {text!r}."
        )
    return model.strip(), dataset, parse_options(rest, file, defaults)


def parse_options(parts: Iterable[str], file: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {KEY: value} of parts `KEY=VALUE`, which follow the rules of `--config.KEY=VALUE`.

    `defaults` name all keys, and fix the types. Raises `UsageError`, which names the `file`, for an
    unknown key or a value of another type.
    """
    options = dict(defaults)
    for part in parts:
        key = part.partition("=")[0]
        if key not in options:
            raise UsageError(
                f"{did_you_mean(key, options)}Expected KEY=VALUE of {file} with KEY one of "
                f"{', '.join(options)}. Received: {part!r}."
            )
        options[key] = parse_value(part, f"{key} of {file}", defaults[key])
    return options
