"""The reported scores of published checkpoints, to compare a measured accuracy with."""

import csv
import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from keras_vit.checkpoints.download import cache_directory
from keras_vit.checkpoints.published_weights import (
    AUGREG,
    Published,
    list_weights,
    published,
    published_classifier,
    url_of,
)
from keras_vit.errors import damage_named
from keras_vit.name_suggestions import did_you_mean

from .. import paper_tables
from ..errors import UsageError

_TRANSFERRED = "imagenet21k+imagenet2012"
# As the README of google-research/vision_transformer has it.
_AT_224 = {"ViT-B_16-224": 81.2, "ViT-L_16-224": 82.7}
_INDEX = "https://storage.googleapis.com/vit_models/augreg/index.csv"


class Scores(NamedTuple):
    """The known accuracies of a published checkpoint."""

    by_dataset: Mapping[str, float]  # {name of a data set: top-1 accuracy in percent}, if any
    source: str = ""  # where they are published


def published_scores(name: str, index: str | os.PathLike | None = None) -> Scores:
    """Returns the published accuracies of a checkpoint, named as `url_of` takes it.

    `index` is AugReg's, a copy of gs://vit_models/augreg/index.csv; None takes `augreg/index.csv`
    in the folder of downloads where there is one.

    Raises `UsageError` if the score is of another classifier than one in the checkpoint;
    `ValueError` if there is no checkpoint of that name, or `index` is not such a file.
    """
    folder, file = _split(name)
    row, indexed = published(name), _indexed(file, index) if folder == "augreg" else None
    if indexed:
        return indexed
    if row and row.score and row.measure != "top-1":
        raise UsageError(
            f"The score of {name}, {row.score} %, is {row.measure}: its file has no classifier. "
            "Expected the name of a checkpoint that has one."
        )
    if row and row.score:
        return Scores(
            {"imagenet2012": row.score},
            "keras_vit/checkpoints/published_weights.py, with its sources",
        )
    if folder == _TRANSFERRED and file in _AT_224:
        return Scores({"imagenet2012": _AT_224[file]}, "README of google-research")
    accuracies = paper_tables.TABLE_5.get((file.replace("_", "/"), "imagenet21k"), {})
    if folder == _TRANSFERRED and accuracies:
        names = ("imagenet2012", "imagenet2012_real")
        return Scores({each: accuracies[each] for each in names}, "Table 5 of the paper")
    return Scores({})


def _split(name):
    url = url_of(name)
    if url is None:
        raise UsageError(
            f"{did_you_mean(name, list_weights())}Expected the name of a published checkpoint, "
            f"such as augreg/B_16. Received: {name!r}."
        )
    *_, folder, file = url.removesuffix(".npz").split("/")
    return folder, file


def _indexed(file, index):
    path = pathlib.Path(index or cache_directory() / "augreg" / "index.csv")
    if not index and not path.exists():
        return None
    failure, advice = f"AugReg's index {path} cannot be read", f"It is published as {_INDEX}."
    with damage_named(failure, advice), path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            for prefix in ("adapt_", ""):
                score = row[f"{prefix}final_test"]
                if row[f"{prefix}filename"] == file and score:
                    dataset = row[f"{prefix}ds"].replace("i1k", "imagenet2012")
                    return Scores({dataset: 100 * float(score)}, str(path))
    return None


def architecture_of(name: str) -> Published:
    """Returns the model, the image size and the arguments of a published checkpoint.

    Raises ValueError if the name is unknown, or does not say them, as those of BiT on VTAB.
    """
    row = published(name) or published_classifier(name)
    if row:
        return row
    folder, file = _split(name)
    fields = AUGREG.fullmatch(file)
    if folder == "augreg" and fields:
        *stem, size, patch = fields["model"].split("_")
        model = f"{''.join(f'{part}+' for part in stem)}ViT-{size}/{patch}"
        return Published(file, model, int(fields["adapt_resolution"] or 224))
    if not file.removeprefix("R50+").startswith("ViT-"):
        raise ValueError(
            f"The name {name!r} does not say the model and its image size: expected --model and "
            "--image_size beside it."
        )
    return Published(file, file.replace("_", "/"), 224)
