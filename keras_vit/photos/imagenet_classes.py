"""The names of ImageNet's 1,000 classes (ILSVRC-2012)."""

import pathlib
from collections.abc import Iterable, Mapping, Set


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
    is_line = text == name and bool(text) and not text.isspace() and name.splitlines() == [name]
    if not is_line or {*"\0\ufeff"} & {*name}:
        raise ValueError(
            "Expected names of classes in UTF-8 and of one line, without the characters 0 and "
            "U+FEFF. "
            f"Received: {name!r}{where and ' in '}{where}. Rename that class."
        )


def class_names_of(names: Iterable[str], num_classes: int, where: str = "") -> tuple[str, ...]:
    """Returns names as a tuple, one for each class, in order; `where` as in `require_class_name`.

    Raises ValueError for another number of names, a collection without order, or no line.
    """
    if isinstance(names, str | Mapping | Set):
        raise ValueError(f"Expected a list of class names. Received: {type(names).__name__}.")
    names = tuple(names)
    for name in names:
        require_class_name(name, where)
    if len(names) != num_classes:
        raise ValueError(
            f"Expected one name for each of the model's {num_classes} classes. Received: "
            f"{len(names)} names."
        )
    return names
