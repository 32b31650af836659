"""Which part of a training set learning rates are chosen on (appendix B.1.1)."""

import re

from training.data import Dataset

_WHOLE_OR_PERCENT = re.compile(r"([\w.-]+)(?:\[(?:([\d.]+)%)?:(?:([\d.]+)%)?\])?", re.ASCII)


def development_splits(dataset: Dataset, train_split: str, share: float) -> tuple[str, str]:
    """Returns (train, development) parts of a training split.

    Where the data set has a development split of its own for the whole of `train_split`, as the
    paper's data sets and VTAB's tasks do, that one; otherwise the last part of `train_split`, of
    photos the last part of each class.

    Args:
        dataset: that is trained on.
        train_split: what the final model is trained on.
        share: of the images, in (0, 1), that the development split gets where it is cut here.

    Raises:
        ValueError: for fewer than 2 images.
    """
    spec = dataset.spec
    if spec.dev and train_split in ("train", "train800val200"):
        return spec.dev
    terms = [_WHOLE_OR_PERCENT.fullmatch(term.strip()) for term in train_split.split("+")]
    if dataset.photos and all(terms):
        return _stratified(terms, share)
    return _by_position(dataset.split(train_split).num_examples, spec, train_split, share)


def _stratified(terms, share):
    first, second = [], []
    for name, start, stop in (term.groups() for term in terms):
        low, high = float(start or 0), float(stop or 100)
        boundary = high - share * (high - low)
        first.append(f"{name}[{low:.6g}%:{boundary:.6g}%]")
        second.append(f"{name}[{boundary:.6g}%:{high:.6g}%]")
    return "+".join(first), "+".join(second)


def _by_position(size, spec, train_split, share):
    kept = size - max(1, round(share * size))
    if kept < 1:
        raise ValueError(
            f"Expected at least 2 images to split. Received: {train_split} with {size}"
        )
    first, second, seen = [], [], 0
    for part in spec.ranges(train_split):
        boundary = min(max(kept - seen, 0), part.size) + part.start
        if boundary > part.start:
            first.append(f"{part.split}[{part.start}:{boundary}]")
        if boundary < part.stop:
            second.append(f"{part.split}[{boundary}:{part.stop}]")
        seen += part.size
    return "+".join(first), "+".join(second)
