"""What follows the colon of `--config=FILE:MODEL,DATASET[,KEY=VALUE…]`, parsed for every config."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any


def parse_argument(
    text: str,
    file: str,
    defaults: Mapping[str, Any],
    datasets: Collection[str] = (),
) -> tuple[str, str, dict]:
    """Returns (MODEL, DATASET, {KEY: value}) of the argument of a config.

    Args:
        text: the argument.
        file: name of the config, for messages.
        defaults: {KEY: value} of all keys that there are; a value that is given is converted to
            the type of its default, whole numbers also from `1e4`.
        datasets: names that DATASET can be; empty for any.

    Raises:
        ValueError: saying what was expected.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) < 2 or not all(parts[:2]) or (datasets and parts[1] not in datasets):
        known = f" with DATASET one of {', '.join(datasets)}" if datasets else ""
        example = next(iter(datasets), "cifar10")
        raise ValueError(
            f"Expected {file}:MODEL,DATASET{known}, for example {file}:ViT-B/16,{example}. "
            f"Received: {text!r}."
        )
    model, dataset, *rest = parts
    return model, dataset, parse_options(rest, defaults)


def parse_options(parts: Iterable[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {KEY: value} of parts `KEY=VALUE`; the arguments are as in `parse_argument`."""
    options = dict(defaults)
    for part in parts:
        key, _, value = part.partition("=")
        if key not in options or not value:
            raise ValueError(
                f"Expected KEY=VALUE with KEY one of {', '.join(options)}. Received: {part!r}."
            )
        options[key] = _converted(key, value, defaults[key])
    return options


def _converted(key, value, default):
    if isinstance(default, bool):
        if value not in ("true", "false"):
            raise ValueError(f"{key}: expected true or false. Received: {value!r}.")
        return value == "true"
    if isinstance(default, int):
        number = float(value)
        if not number.is_integer():
            raise ValueError(f"{key}: expected a whole number. Received: {value!r}.")
        return int(number)
    return value
