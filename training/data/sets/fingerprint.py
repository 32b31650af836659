"""Identifies the data of a run, and says what has changed in it since.

A fingerprint is made of names, sizes and labels: of photos, or of the files of prepared data sets.
It stands in `config.json` beside the names of the classes, and as numbers in every checkpoint.
"""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import shlex
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.files.zip_archives import open_archive

from ...errors import UsageError
from ...io.paths import any_path, read_path, size_and_time
from .splits import Photo

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
            counted = all(isinstance(row, list) and [*map(type, row)] == [int, str] for row in rows)
            scored = data.get("few_shot", {})
            texts = isinstance(scored, dict) and all(
                isinstance(each, str) for each in scored.values()
            )
            since, accepted = data.get("accepted_after", 0), data.get("accepted", [])
            return named and counted and texts and [type(since), type(accepted)] == [int, list]
    return False


def require_same(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    where: str,
    accept: bool = False,
    finished: bool = False,
    *,
    dataset: str = "",
    model: str = "",
) -> None:
    """Raises `UsageError` if the data of the run `where` is not what it was.

    With `accept` its owner takes other data, as long as no label stands for another class, and the
    run has not `finished`: other photos would not train it. The error names the command that trains
    `model`, the run's, if there is one, on `dataset`, its data.
    """
    changed, moved = changes(before, now)
    others = any(_photos(before[split]) != _photos(now[split]) for split in SPLITS)
    if scores_others(before, now):
        scored = "the images of config.few_shot are others"
        changed, others = f"{changed}; {scored}" if changed else scored, True
    finished = finished and others
    # A folder of photos has a command that trains the run's model on what is there now.
    name = shlex.quote(f"own_photos:{dataset.removeprefix('folder:')},model={model}")
    new = f"train its model on what is there now: keras-vit train --config={name} "
    new += f"--workdir={shlex.quote(f'{where}-2')}"
    new = new if model and dataset.startswith(("folder:", "labels:")) else "use another --workdir"
    if moved:
        remedy = "Labels stand for other classes now: put the data back, or"
    elif finished:
        remedy = "The run has ended: put the data back, or"
    else:
        remedy = "Put the data back, set --config.data_changed=accept to go on with it, or"
    if changed and accept and not moved and not finished:
        logger.warning("The data of %s has changed: %s. It is accepted.", where, changed)
    elif changed:
        raise UsageError(f"The data of {where} has changed: {changed}. {remedy} {new}")
    elif _written_since(before, now):
        logger.warning(
            "Files of the data of %s were written since, with the same names and sizes. If they "
            "are others, use another --workdir.",
            where,
        )


def scores_others(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the images of `config.few_shot` are others."""
    return len({data.get("few_shot", {}).get("digest") for data in (before, now)} - {None}) > 1


def _written_since(before, now):
    found = [(before.get(split), now.get(split)) for split in (*SPLITS, "few_shot")]
    both = [pair for pair in found if all(pair)]
    return any(was.get("modified") != there.get("modified") for was, there in both)


def _photos(split):
    """Returns what identifies the examples of a split, whatever the folders are called."""
    return split and split.get("classes", split["digest"])


def changes_since(config: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns in sentences what has changed in the data of a run, "" if nothing has.

    `config` is that of the run, with its data; `now` is of `Dataset.describe`.
    """
    changed, _ = changes(config["data"], now)
    said = [f"{changed}."] if changed else []
    if not changed and _written_since(config["data"], now):
        said.append("Files were written since, with the same names and sizes, and may be others.")
    if config["data"].get("accepted"):
        said.append("Other data was accepted while it trained.")
    others = any(_photos(config["data"][split]) != _photos(now[split]) for split in SPLITS)
    if said and now["train"].get("classes") and (others or config["data"].get("accepted")):
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


def of_splits(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the fingerprint of several splits as one, {} of none."""
    keys = ("digest", "modified") if found else ()
    return {key: digest_of(split[key].encode() for split in found) for key in keys}


def digest_of(parts: Iterable[bytes]) -> str:
    """Returns a digest of parts, 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def digest_of_checkpoint(checkpoint: str) -> str:
    """Returns a digest of the file or run of `config.checkpoint`, "" of a published name or none.

    A file is read once by a process, as most runs of a protocol begin from the same.
    """
    if not checkpoint:
        return ""
    path = any_path(checkpoint)

    def read():
        files = [path]
        if path.is_dir():
            # A run's folder, or Hugging Face's files and their descriptions.
            published = (path.glob("*.safetensors*"), path.glob("*.json"))
            own = path / "model.keras"
            files = [own] if own.is_file() else sorted({*itertools.chain(*published)})
        found = [_digest_of_file(file, size_and_time(file)) for file in files if file.is_file()]
        return digest_of(map(str.encode, found)) if found else ""

    return read_path(path, read)


@functools.cache
def _digest_of_file(file, changed):
    with file.open("rb") as stream:
        # A model that is saved again, as finished runs do, differs in its date.
        with contextlib.suppress(zipfile.BadZipFile, ValueError), open_archive(stream) as archive:
            names = sorted({*archive.namelist()} - {"metadata.json"})
            return digest_of(part for each in names for part in (each.encode(), archive.read(each)))
        stream.seek(0)
        return digest_of([stream.read()])


def as_numbers(data: Mapping[str, Any]) -> np.ndarray:
    """Returns the digest of a run's data as float64 (8,), for checkpoints."""
    found = [*(data["class_names"] or ())]
    found += [(data[key] or {}).get("digest", "") for key in SPLITS]
    digest = digest_of(text.encode() for text in found)
    return np.frombuffer(bytes.fromhex(digest)[:8], np.uint8).astype(np.float64)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns what changed between two descriptions of data, and whether labels moved.

    A text such as "train has 20 photos of crow instead of 17", of at most five changes; and whether
    a label stands for another class now, so that a model of `before` cannot go on.
    """
    old, new = ([*(each["class_names"] or ())] for each in (before, now))
    gone = [name for name in old if name not in new]
    come = [name for name in new if name not in old]
    photos = dict(zip(old, before["train"].get("classes", ()), strict=False))
    others = dict(zip(new, now["train"].get("classes", ()), strict=False))
    if photos and others:
        # The same photos under another name.
        pairs = ((was, name) for was in gone for name in come if photos.get(was) == others[name])
    else:
        # Without photos to compare, another name in its place is taken for the same class.
        places = zip(old, new, strict=False)
        pairs = ((was, name) for was, name in places if was in gone and name in come)
    called = {name: was for was, name in pairs}
    found = [f"the class {was} is called {name}" for name, was in called.items()]
    found += [f"the class {name} was added" for name in come if name not in called]
    found += [f"the class {name} was removed" for name in gone if name not in called.values()]
    moved = [called.get(name, name) for name in new] != old
    if moved:
        found = found or ["the classes stand in another order"]
    else:
        splits = [(before[one], now[one], one) for one in SPLITS if before[one] and now[one]]
        for was, there, split in splits:
            counts = zip(was.get("classes", ()), there.get("classes", ()), new, strict=False)
            for (count, one), (number, other), name in counts:
                if count != number:
                    found.append(f"{split} has {number} photos of {name} instead of {count}")
                elif one != other:
                    found.append(f"photos of {name} in {split} are others")
            if not was.get("classes") and was["examples"] != there["examples"]:
                count, number = was["examples"], there["examples"]
                found.append(f"{split} has {number} examples instead of {count}")
        if not found and any(was["digest"] != there["digest"] for was, there, _ in splits):
            found = ["the files are others, or stand in other folders"]
        swapped = [
            f"the photos of {new[one]} are in {new[other]}"
            for was, there, _ in splits
            for one, photos in enumerate(was.get("classes", ()))
            for other, others in enumerate(there.get("classes", ()))
            if photos[0] and photos == others
            # Neither is what it was.
            if others != was["classes"][other] and photos != there["classes"][one]
        ]
        swapped = list(dict.fromkeys(swapped))
        found, moved = swapped or found, bool(swapped)
    return "; ".join(found[:5]) + ("; …" if len(found) > 5 else ""), moved
