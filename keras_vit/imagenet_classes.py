"""The names of ImageNet's 1,000 classes (ILSVRC-2012)."""

import pathlib


def imagenet_classes() -> tuple[str, ...]:
    """Returns the names in the order of the logits, which is that of their WordNet synsets."""
    text = pathlib.Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return tuple(line.partition(" ")[2] for line in lines)
