"""Split arithmetic: which examples a text such as `train[:98%]+validation[10:20]` names.

The grammar and the rounding are those of TensorFlow Datasets (a percentage becomes the nearest
example), plus two things it lacks: aliases, so that `test` may stand for ImageNet's `validation`,
and stratified slices of photos.
"""

import hashlib
import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

_TERM = re.compile(
    r"(?P<name>[\w.-]+)(?:\[(?P<start>-?[\d_.]+%?)?:(?P<stop>-?[\d_.]+%?)?\])?", re.ASCII
)
# The splits that `own_photos` trains on and evaluates, unless there are folders for both.
HELD_OUT_FIFTH = ("train[:80%]", "train[80%:]")
# The share of a class may miss the requested share by this part of the smaller side.
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

    def shared_with(self, other: "Range") -> int:
        """Returns the number of examples that are in both."""
        if self.split != other.split:
            return 0
        return max(0, min(self.stop, other.stop) - max(self.start, other.start))


class Photo(NamedTuple):
    """A photo: its path below the root, the number of its class, and its `size_and_time`."""

    path: str
    label: int
    size: int
    modified: int = 0


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
        ValueError: for an unknown name, a malformed text, a slice beyond the end, with one end in
            percent and one in examples, a term without an example, or two that share one.
    """
    aliases, ranges = aliases or {}, []
    for term in _terms(split, sizes.keys() | aliases.keys()):
        name = term["name"]
        whole = resolve(aliases[name], sizes) if name in aliases else [Range(name, 0, sizes[name])]
        total = sum(part.size for part in whole)
        first, last = _ends(term, total, lambda percent, of=total: round(percent * of / 100.0))
        found = []
        for part in whole:
            low, high = max(first, 0), min(last, part.size)
            if low < high:
                found.append(Range(part.split, part.start + low, part.start + high))
            first, last = first - part.size, last - part.size
        ranges += _nonempty(found, term, split, sizes)
    shared = any(one.shared_with(other) for one, other in combinations(ranges, 2))
    _require_apart(not shared, split)
    return ranges


def select(split: str, photos: Mapping[str, Sequence[Photo]]) -> list[Photo]:
    """Returns the photos that `split` names, in their order.

    Percentages are stratified: each class is cut on its own, by a hash of each photo's name. A
    photo keeps its side when others are added, unless the share of its class would then miss the
    share asked for by more than a quarter of the smaller side: 15 to 25 % for `train[80%:]`. Errors
    as `resolve`.
    """
    chosen: list[Photo] = []
    for term in _terms(split, photos.keys()):
        members = photos[term["name"]]
        if "%" in term[0]:
            first, last = (_below(members, end / 100) for end in _ends(term, 100, float))
            kept = last - first
            found = [photo for place, photo in enumerate(members) if place in kept]
        else:
            found = list(members[slice(*_ends(term, len(members), float))])
        chosen += _nonempty(found, term, split, {name: len(photos[name]) for name in photos})
    _require_apart(len({*map(id, chosen)}) == len(chosen), split)
    return chosen


def divide(split: str, sizes: Mapping[str, int], share: float) -> tuple[str, str]:
    """Returns two splits of photos that make up `split`: the second has the last `share` of it.

    Each term is divided on its own, whole splits and percentages within each class.
    """
    parts: tuple[list[str], list[str]] = ([], [])
    for term in _terms(split, sizes.keys()):
        unit = "%" if "%" in term[0] or "[" not in term[0] else ""
        first, last = _ends(term, 100 if unit else sizes[term["name"]], float)
        boundary = last - share * (last - first)
        ends = first, boundary if unit else min(round(boundary), last - 1), last
        for part, *slices in zip(parts, ends, ends[1:], strict=False):
            low, high = (f"{end:.6g}%" if unit else f"{end:.0f}" for end in slices)
            part.append(f"{term['name']}[{low}:{high}]")
    return "+".join(parts[0]), "+".join(parts[1])


def _nonempty(found, term, split, sizes):
    if not found:
        part = "" if term[0] == split else f", of which {term[0]}"
        raise ValueError(
            f"The split {split!r}{part} is empty: expected at least one image in it, of "
            f"{dict(sizes)}. Add images, or name another part."
        )
    return found


def _require_apart(is_apart, split):
    if not is_apart:
        raise ValueError(
            f"Expected a split whose parts share no images. Received: {split!r}, in which some "
            "would count twice."
        )


def _terms(split, known):
    """Yields the terms of a split, matches of `_TERM`."""
    for text in split.split("+"):
        term = _TERM.fullmatch(text.strip())
        if term is None:
            raise ValueError(
                "Expected a split such as 'train', 'train[:98%]' or "
                f"'train[:800]+validation[:200]'. Received: {text!r}."
            )
        if term["name"] not in known:
            raise ValueError(
                f"Unknown split {term['name']!r}. Expected one of {', '.join(sorted(known))}, or a "
                "part of one, such as train[80%:]. Commands take it as --split, or few_shot as "
                "--train_split and --test_split; configs as train_split and eval_split."
            )
        if len({end[-1] == "%" for end in term.group("start", "stop") if end}) > 1:
            raise ValueError(
                "Expected both ends of a slice in percent, or both in examples. Received: "
                f"{term[0]!r}."
            )
        yield term


def _ends(term, total, of_percent):
    """Returns where a term begins and ends in 0..total; `of_percent` converts percentages."""

    def place(text):
        percent = text.endswith("%")
        value = float(text[:-1]) if percent else int(text)
        if percent and abs(value) > 100:
            raise ValueError(f"Expected percentages up to 100%. Received: {term[0]!r}.")
        if not percent and abs(value) > total:
            raise ValueError(f"The slice {term[0]!r} goes beyond the {total} examples there are.")
        value = of_percent(value) if percent else value
        return value + total if value < 0 else value

    first = place(term["start"] or "0")
    return first, max(first, place(term["stop"] or str(total)))


def _below(photos: Sequence[Photo], share: float) -> set[int]:
    """Returns the places of the photos whose hash is in the first `share` of their class."""
    classes = defaultdict(list)
    for place, photo in enumerate(photos):
        classes[photo.label].append((_hash(photo.path), place))
    below: set[int] = set()
    for members in classes.values():
        wanted = sum(value < share for value, _ in members)
        count = _clamped(wanted, len(members), share)
        below.update(place for _, place in sorted(members)[:count])
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
    """Returns a number in [0, 1) of a photo's name, which a copy keeps."""
    name = os.fsencode(path.rpartition("/")[2])
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") / 2**64
