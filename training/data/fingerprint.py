"""Identifies the data of a run, and says what has changed in it since.

A fingerprint is made of names, sizes and labels: of photos, or of the files of prepared data sets.
It stands in `config.json` beside the names of the classes, and as numbers in every checkpoint.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.training.data.splits import Photo
from keras_vit.training.errors import UsageError

logger = logging.getLogger("keras_vit")

SPLITS = ("train", "eval")


def is_description(data: Any) -> bool:
    """Whether something read from a file has the form of `Dataset.describe`."""
    match data:
        case {
            "class_names": None | [*_] as names,
            "train": {"digest": str(), "examples": int()} as train,
            "eval": None | {"digest": str(), "examples": int()} as evaluation,
        }:
            rows = [*train.get("classes", ()), *(evaluation or {}).get("classes", ())]
            named = all(isinstance(name, str) for name in names or ())
            return named and all(
                isinstance(row, list) and [*map(type, row)] == [int, str] for row in rows
            )
    return False


def require_same(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    where: str,
    accept: bool = False,
    finished: bool = False,
) -> None:
    """Raises `UsageError` if the data of the run `where` is not what it was.

    With `accept` its owner takes other data, as long as no label stands for another class, and the
    run has not `finished`: other photos would not train it.
    """
    changed, moved = changes(before, now)
    finished = finished and any(_photos(before[split]) != _photos(now[split]) for split in SPLITS)
    shown = "; ".join(changed[:5]) + ("; …" if len(changed) > 5 else "")
    remedy = "Put it back, set --config.data_changed=accept to go on with it, or"
    if finished:
        remedy = "It trains no longer: put it back, or"
    if moved:
        remedy = "Labels stand for other classes now: put it back, or"
    if changed and not (accept and not moved and not finished):
        raise UsageError(
            f"The data of {where} has changed: {shown}. {remedy} use another --workdir."
        )
    if changed:
        logger.warning("The data of %s has changed: %s. It is accepted.", where, shown)


def _photos(split):
    """Returns what identifies the examples of a split, whatever the folders are called."""
    return split and split.get("classes", split["digest"])


def changes_since(config: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns in sentences what has changed in the data of a run, "" if nothing has.

    `config` is that of the run, with its data; `now` is of `Dataset.describe`.
    """
    found, _ = changes(config["data"], now)
    said = ["; ".join(found[:5]) + "."] if found else []
    if config["data"].get("accepted"):
        said.append("Other data was accepted while it trained.")
    pools = {(config[f"{use}_split"] or "").partition("[")[0] for use in SPLITS}
    if said and now["train"].get("classes") and len(pools) == 1:
        said.append("Photos may have changed sides: some held out now may have trained the run.")
    return " ".join(said)


def of_photos(photos: Sequence[Photo], num_classes: int) -> dict[str, Any]:
    """Returns the fingerprint of photos in their order.

    Returns:
        `{"examples": number, "digest": text, "modified": digest of the times of their last change,
        "classes": [[number, digest], …] by label}`; the digests of classes leave out the folders.
    """
    by_class: list[list[bytes]] = [[] for _ in range(num_classes)]
    for path, label, size, _ in photos:
        by_class[label].append(os.fsencode(f"{path.rpartition('/')[2]}\0{size}"))
    rows = (os.fsencode(f"{path}\0{label}\0{size}") for path, label, size, _ in photos)
    return {
        "examples": len(photos),
        "digest": digest_of(rows),
        "modified": digest_of(str(photo.modified).encode() for photo in photos),
        "classes": [[len(names), digest_of(sorted(names))] for names in by_class],
    }


def digest_of(parts: Iterable[bytes]) -> str:
    """Returns a digest of parts, 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def as_numbers(data: Mapping[str, Any]) -> np.ndarray:
    """Returns the digest of a run's data as float64 (8,), for checkpoints."""
    found = [*(data["class_names"] or ())]
    found += [(data[key] or {}).get("digest", "") for key in SPLITS]
    digest = digest_of(text.encode() for text in found)
    return np.frombuffer(bytes.fromhex(digest)[:8], np.uint8).astype(np.float64)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Returns what changed between two descriptions of data, and whether labels moved.

    Sentences without an end, such as "train has 20 photos of crow instead of 17"; and whether a
    label stands for another class now, so that a model of `before` cannot go on.
    """
    old, new = ([*(each["class_names"] or ())] for each in (before, now))
    found, moved = [], False
    if old and not new:
        found, moved = ["the names of the classes are gone"], True
    elif new and not old:
        found = ["the classes have names now"]
    elif old:
        found, moved = _changed_names(old, new, before["train"], now["train"])
    for split in () if moved else SPLITS:
        if before[split] and now[split] and before[split]["digest"] != now[split]["digest"]:
            found += _changed_split(before[split], now[split], new, split) or (
                [f"the photos of {split} stand in other folders"] if old == new else []
            )
    return found, moved


def _changed_names(old, new, before, now):
    """Returns sentences and whether labels moved, given the fingerprints of the training photos."""
    gone = [name for name in old if name not in new]
    come = [name for name in new if name not in old]
    # Classes that hold the same photos under another name.
    photos, others = (
        dict(zip(names, each.get("classes", ()), strict=False))
        for names, each in ((old, before), (new, now))
    )
    renamed = {
        was: name
        for was in gone
        for name in come
        if was in photos and photos[was] == others.get(name)
    }
    in_place = {was: name for was, name in zip(old, new, strict=False) if was != name}
    # Without photos to compare, another name in its place is taken for the same class.
    moved = len(old) != len(new) or any(
        was in new or name in old or renamed.get(was, "" if photos else name) != name
        for was, name in in_place.items()
    )
    renamed = renamed if moved else in_place
    found = [f"the class {was} is called {name}" for was, name in renamed.items()]
    found += [f"the class {name} was added" for name in come if name not in renamed.values()]
    found += [f"the class {name} was removed" for name in gone if name not in renamed]
    if old != new:
        return found or ["the classes stand in another order"], moved
    places = {digest: name for name, (count, digest) in others.items() if count}
    found = [
        f"the photos of {was} are in {places[row[1]]}"
        for was, row in photos.items()
        if row != others[was] and row[1] in places and places[row[1]] != was
        if photos[places[row[1]]] != others[places[row[1]]]
    ]
    return found, bool(found)


def _changed_split(before, now, names, split):
    if not (before.get("classes") and now.get("classes")):
        if before["examples"] != now["examples"]:
            return [f"{split} has {now['examples']} examples instead of {before['examples']}"]
        return [f"the files of {split} are others"]
    found = []
    for was, is_now, name in zip(before["classes"], now["classes"], names, strict=True):
        if was[0] != is_now[0]:
            found.append(f"{split} has {is_now[0]} photos of {name} instead of {was[0]}")
        elif is_now != was:
            found.append(f"photos of {name} in {split} are others")
    return found
