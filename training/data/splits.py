"""Split arithmetic: which examples a text such as `train[:98%]+validation[10:20]` names.

The grammar and the rounding are those of TensorFlow Datasets (a percentage becomes the nearest
example), plus two things it lacks: aliases, so that `test` may stand for ImageNet's `validation`,
and slices of folders of images.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_TERM = re.compile(
    r"(?P<name>[\w.-]+)(?:\[(?P<start>-?[\d_.]+%?)?:(?P<stop>-?[\d_.]+%?)?\])?", re.ASCII
)


class Range(NamedTuple):
    """The examples `start` to `stop` (exclusive) of one split that exists on disk."""

    split: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of examples."""
        return self.stop - self.start


def resolve(
    split: str, sizes: Mapping[str, int], aliases: Mapping[str, str] | None = None
) -> list[Range]:
    """Returns the ranges of native splits that `split` names, in order.

    Args:
        split: terms joined by `+`; a term is the name of a split or alias with an optional slice
            `[start:stop]` in examples or percent, negative numbers counting from the end.
        sizes: number of examples of every native split.
        aliases: names that stand for a split text over native splits.

    Raises:
        ValueError: for an unknown name, a malformed text, or a slice beyond the end.
    """
    ranges = [part for term in split.split("+") for part in _resolve_term(term, sizes, aliases)]
    if not sum(part.size for part in ranges):
        raise ValueError(
            f"The split {split!r} is empty: expected at least one image in it, of {dict(sizes)}. "
            "Add images, or name another part."
        )
    return ranges


def num_examples(
    split: str, sizes: Mapping[str, int], aliases: Mapping[str, str] | None = None
) -> int:
    """Returns the number of examples that `split` names; see `resolve`."""
    return sum(part.size for part in resolve(split, sizes, aliases))


def _resolve_term(
    term: str, sizes: Mapping[str, int], aliases: Mapping[str, str] | None
) -> list[Range]:
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise ValueError(
            f"Expected a split such as 'train', 'train[:98%]' or 'train[:800]+validation[:200]'. "
            f"Received: {term!r}."
        )
    name = match["name"]
    if aliases and name in aliases:
        base = resolve(aliases[name], sizes)
    elif name in sizes:
        base = [Range(name, 0, sizes[name])]
    else:
        known = sorted({*sizes, *(aliases or ())})
        raise ValueError(f"Unknown split {name!r}. Expected one of {', '.join(known)}.")
    total = sum(part.size for part in base)
    start = _boundary(match["start"], total, term, default=0)
    stop = _boundary(match["stop"], total, term, default=total)
    return _slice(base, start, max(start, stop))


def _boundary(text: str | None, total: int, term: str, *, default: int) -> int:
    if text is None:
        return default
    if text.endswith("%"):
        percent = float(text[:-1])
        if abs(percent) > 100:
            raise ValueError(f"Expected percentages up to 100%. Received: {term!r}.")
        value = round(percent * total / 100.0)
    else:
        value = int(text)
        if abs(value) > total:
            raise ValueError(f"The slice {term!r} goes beyond the {total} examples there are.")
    return value + total if value < 0 else value


def _slice(base: list[Range], start: int, stop: int) -> list[Range]:
    out, offset = [], 0
    for part in base:
        low = max(start - offset, 0)
        high = min(stop - offset, part.size)
        if low < high:
            out.append(Range(part.split, part.start + low, part.start + high))
        offset += part.size
    return out
