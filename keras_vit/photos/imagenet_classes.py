"""The names of ImageNet's 1,000 classes (ILSVRC-2012)."""

import pathlib


def imagenet_classes() -> tuple[str, ...]:
    """Returns the names in the order of the logits, which is that of their WordNet synsets."""
    text = pathlib.Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return tuple(line.partition(" ")[2] for line in lines)


def require_class_name(name: str, where: str = "") -> None:
    """Raises ValueError unless a name is a line that any file of class names can hold.

    `where` says in the message what the name is of.
    """
    text = isinstance(name, str) and name.encode(errors="replace").decode()
    if text != name or not text.strip() or name.splitlines() != [name] or {*"\0\ufeff"} & {*name}:
        raise ValueError(
            "Expected names of classes in UTF-8 and of one line, without the characters 0 and "
            "U+FEFF. "
            f"Received: {name!r}{where and ' in '}{where}. Rename that class."
        )
