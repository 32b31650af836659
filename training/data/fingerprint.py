"""Which data a run is trained on, and what has changed in it since.

A fingerprint is made of names, sizes and labels: of photos, or of the files of prepared data sets.
It stands in `config.json` beside the names of the classes, and as numbers in every checkpoint.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from training.data.splits import Photo
from training.errors import UsageError

if TYPE_CHECKING:
    from training.data.dataset import Split

# Of a data set without names of classes.
_NAMELESS: tuple[str, ...] = ()


def describe(train: "Split", evaluation: "Split | None") -> dict[str, Any]:
    """Returns the data of a run, `{"class_names": names or None, "train": …, "eval": …}`."""
    names = train.dataset.class_names
    return {
        "class_names": None if names is None else list(names),
        "train": train.fingerprint,
        "eval": evaluation.fingerprint if evaluation else None,
    }


def is_description(data: Any) -> bool:
    """Whether something read from a file has the form of what `describe` returns."""

    def of_split(found):
        return (
            isinstance(found, dict)
            and isinstance(found.get("digest"), str)
            and isinstance(found.get("examples"), int)
            and all(
                isinstance(each, list) and len(each) == 2 and isinstance(each[0], int)
                for each in found.get("classes", ())
            )
        )

    if not isinstance(data, dict) or not {"class_names", "train", "eval"} <= data.keys():
        return False
    names = data["class_names"]
    named = names is None or (isinstance(names, list) and all(isinstance(n, str) for n in names))
    return named and of_split(data["train"]) and (data["eval"] is None or of_split(data["eval"]))


def require_same(
    before: Mapping[str, Any], now: Mapping[str, Any], where: str, accept: bool = False
) -> None:
    """Checks that the data of a run is what it was.

    Args:
        before, now: of `describe`.
        where: names the run.
        accept: whether its owner takes other data, as long as no label stands for another class.

    Raises:
        UsageError: saying what changed and what to do.
    """
    changed, moved = changes(before, now)
    if not changed or (accept and not moved):
        return
    remedy = "Labels stand for other classes now: put it back, or use another --workdir."
    if not moved:
        remedy = (
            "Put it back, set --config.data_changed=accept to go on with it, or use another "
            "--workdir."
        )
    shown = "; ".join(changed[:5]) + ("; …" if len(changed) > 5 else "")
    raise UsageError(f"The data of {where} has changed: {shown}. {remedy}")


def of_photos(photos: Sequence[Photo], num_classes: int) -> dict[str, Any]:
    """Returns the fingerprint of photos in their order.

    Returns:
        `{"examples": number, "digest": text, "classes": [[number, digest], …] by label}`; the
        digests of classes leave out the folders.
    """
    by_class: list[list[bytes]] = [[] for _ in range(num_classes)]
    for photo in photos:
        name = os.fsencode(photo.path.rpartition("/")[2])
        by_class[photo.label].append(name + f"\0{photo.size}".encode())
    classes = [[len(names), digest_of(sorted(names))] for names in by_class]
    rows = (os.fsencode(f"{each.path}\0{each.label}\0{each.size}") for each in photos)
    return {"examples": len(photos), "digest": digest_of(rows), "classes": classes}


def of_records(examples: int, split: str, identity: Iterable[bytes]) -> dict[str, Any]:
    """Returns the fingerprint of a split of record files: `{"examples": …, "digest": …}`.

    Args:
        examples: their number.
        split: ranges of native splits, as text.
        identity: names, sizes and index of the files.
    """
    return {"examples": examples, "digest": digest_of((split.encode(), *identity))}


def digest_of(parts: Iterable[bytes]) -> str:
    """Returns a digest of parts, 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def as_numbers(data: Mapping[str, Any]) -> np.ndarray:
    """Returns the digest of a run's data as float64 (8,), for checkpoints."""
    found = [*(data["class_names"] or _NAMELESS)]
    found += [(data[key] or {}).get("digest", "") for key in ("train", "eval")]
    digest = digest_of(text.encode() for text in found)
    return np.frombuffer(bytes.fromhex(digest)[:8], np.uint8).astype(np.float64)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Returns what changed between two descriptions of data, and whether labels moved.

    Args:
        before, now: of `describe`.

    Returns:
        Sentences without an end, such as "3 photos of crow were added to train"; and whether a
        label stands for another class now, so that a model of `before` cannot go on.
    """
    old, new = (tuple(each["class_names"] or _NAMELESS) for each in (before, now))
    found, moved = _changed_names(old, new, _renamed(before["train"], now["train"], old, new))
    if moved:
        return found, True
    for split in ("train", "eval"):
        if before[split] and now[split] and before[split]["digest"] != now[split]["digest"]:
            found += _changed_split(before[split], now[split], new, split) or (
                [] if found else [f"the photos of {split} stand in other folders"]
            )
    return found, False


def _renamed(before, now, old, new):
    """Returns {old name: new name} of classes that hold the same photos under another name."""
    if not (before.get("classes") and now.get("classes")):
        return {}
    holder = {tuple(each): name for each, name in zip(now["classes"], new, strict=True)}
    pairs = zip(old, before["classes"], strict=True)
    found = {name: holder.get(tuple(each)) for name, each in pairs if name not in new}
    return {was: name for was, name in found.items() if name and name not in old}


def _changed_names(old, new, renamed):
    if not old or not new or old == new:
        return [], False
    pairs = dict(zip(old, new, strict=False))
    moved = len(old) != len(new) or any(
        was != now and (was in new or now in old or renamed.get(was, now) != now)
        for was, now in pairs.items()
    )
    if not moved:
        renamed = {was: now for was, now in pairs.items() if was != now}
    removed = [name for name in old if name not in new and name not in renamed]
    added = [name for name in new if name not in old and name not in renamed.values()]
    found = [f"the class {was} is called {now}" for was, now in renamed.items()]
    found += [f"the class {name} was added" for name in added]
    found += [f"the class {name} was removed" for name in removed]
    return found or ["the classes stand in another order"], moved


def _changed_split(before, now, names, split):
    if not (before.get("classes") and now.get("classes")):
        if before["examples"] != now["examples"]:
            return [f"{split} has {now['examples']} examples instead of {before['examples']}"]
        return [f"the files of {split} are others"]
    found = []
    for (old, old_digest), (new, digest), name in zip(
        before["classes"], now["classes"], names, strict=True
    ):
        if old != new:
            verb = "added to" if new > old else "removed from"
            photos = f"{abs(new - old)} photo{'s' if abs(new - old) > 1 else ''} of {name}"
            found.append(f"{photos} {'were' if abs(new - old) > 1 else 'was'} {verb} {split}")
        elif old_digest != digest:
            found.append(f"photos of {name} in {split} are others")
    return found
