"""Split arithmetic: which examples a text such as `train[:98%]+validation[10:20]` names.

The grammar and the rounding are those of TensorFlow Datasets (a percentage becomes the nearest
example), plus two things it lacks: aliases, so that `test` may stand for ImageNet's `validation`,
and stratified slices of photos.
"""

import hashlib
import math
import os
import pathlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_TERM = re.compile(
    r"(?P<name>[\w.-]+)(?:\[(?P<start>-?[\d_.]+%?)?:(?P<stop>-?[\d_.]+%?)?\])?", re.ASCII
)
# What `own_photos` trains on and evaluates, unless there are folders for both.
HELD_OUT_FIFTH = ("train[:80%]", "train[80%:]")
# Part of the smaller side by which the share of a class may miss the share that was asked for.
_SLACK = 0.25


class Range(NamedTuple):
    """The examples `start` to `stop` (exclusive) of one split that exists on disk."""

    split: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of examples."""
        return self.stop - self.start


class Photo(NamedTuple):
    """A photo of a folder or table: its path below the root, its label and its size in bytes."""

    path: str
    label: int
    size: int


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
        ValueError: for an unknown name, a malformed text, a slice beyond the end or no example.
    """
    ranges = [part for term in split.split("+") for part in _ranges(term, sizes, aliases or {})]
    return _nonempty(ranges, sum(part.size for part in ranges), split, sizes)


def select(split: str, photos: Mapping[str, Sequence[Photo]]) -> list[Photo]:
    """Returns the photos that `split` names, in their order.

    Percentages are stratified: each class is cut on its own, by a hash of each photo's name. A
    photo keeps its side when others are added, unless the share of its class would then miss the
    share asked for by more than a quarter of the smaller side: 15 to 25 % for `train[80%:]`.

    Args:
        split: as in `resolve`.
        photos: those of every native split, in order.

    Raises:
        ValueError: as `resolve`.
    """
    sizes = {name: len(items) for name, items in photos.items()}
    chosen = [photo for term in split.split("+") for photo in _photos(term, photos, sizes)]
    return _nonempty(chosen, len(chosen), split, sizes)


def _nonempty(found, count, split, sizes):
    if not count:
        raise ValueError(
            f"The split {split!r} is empty: expected at least one image in it, of {dict(sizes)}. "
            "Add images, or name another part."
        )
    return found


def _parsed(term, known):
    """Returns the name of a split and the texts of its boundaries, or None."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise ValueError(
            f"Expected a split such as 'train', 'train[:98%]' or 'train[:800]+validation[:200]'. "
            f"Received: {term!r}."
        )
    if match["name"] not in known:
        raise ValueError(
            f"Unknown split {match['name']!r}. Expected one of {', '.join(sorted(known))}."
        )
    return match["name"], match["start"], match["stop"]


def _ranges(term, sizes, aliases):
    name, start, stop = _parsed(term, {*sizes, *aliases})
    base = resolve(aliases[name], sizes) if name in aliases else [Range(name, 0, sizes[name])]
    total = sum(part.size for part in base)
    first = _boundary(start, total, term, default=0)
    last = max(first, _boundary(stop, total, term, default=total))
    sliced, offset = [], 0
    for part in base:
        low, high = max(first - offset, 0), min(last - offset, part.size)
        if low < high:
            sliced.append(Range(part.split, part.start + low, part.start + high))
        offset += part.size
    return sliced


def _boundary(text: str | None, total: int, term: str, *, default: int) -> int:
    if text is None:
        return default
    if text.endswith("%"):
        value = round(_percent(text, term) * total / 100.0)
    else:
        value = int(text)
        if abs(value) > total:
            raise ValueError(f"The slice {term!r} goes beyond the {total} examples there are.")
    return value + total if value < 0 else value


def _percent(text: str, term: str) -> float:
    percent = float(text[:-1])
    if abs(percent) > 100:
        raise ValueError(f"Expected percentages up to 100%. Received: {term!r}.")
    return percent


def _photos(term, photos, sizes):
    name, *texts = _parsed(term, sizes)
    if not any(text and text.endswith("%") for text in texts):
        ((_, start, stop),) = _ranges(term, sizes, {}) or [Range(name, 0, 0)]
        return photos[name][start:stop]
    if not all(text is None or text.endswith("%") for text in texts):
        raise ValueError(
            f"Expected both ends of a slice of photos in percent, or both in images. Received: "
            f"{term!r}."
        )
    first, last = (
        default if text is None else (_percent(text, term) + 100 * text.startswith("-")) / 100
        for text, default in zip(texts, (0.0, 1.0), strict=True)
    )
    kept = _below(photos[name], last) - _below(photos[name], first)
    return [photo for number, photo in enumerate(photos[name]) if number in kept]


def _below(photos: Sequence[Photo], share: float) -> set[int]:
    """Returns the places of the photos whose hash is in the first `share` of their class."""
    classes = defaultdict(list)
    for place, photo in enumerate(photos):
        classes[photo.label].append((_hash(photo.path), place))
    below: set[int] = set()
    for members in classes.values():
        members.sort()
        wanted = sum(value < share for value, _ in members)
        count = _clamped(wanted, len(members), share)
        below.update(place for _, place in members[:count])
    return below


def _clamped(wanted: int, total: int, share: float) -> int:
    """Returns the number nearest to `wanted` that is about `share` of `total`."""
    slack = _SLACK * min(share, 1 - share)
    # To nine digits, so that 0.15 * 20 is 3.
    least = math.ceil(round((share - slack) * total, 9))
    most = math.floor(round((share + slack) * total, 9))
    if least > most:
        least = most = round(share * total)
    return min(max(wanted, least), most)


def _hash(path: str) -> float:
    """Returns a number in [0, 1) of a photo's name within its class, which a copy keeps."""
    name = pathlib.PurePath(path).name
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:8], "big") / 2**64
