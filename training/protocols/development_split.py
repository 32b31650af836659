"""Which part of a training set learning rates are chosen on (appendix B.1.1)."""

from training.data.dataset_spec import DatasetSpec


def development_splits(spec: DatasetSpec, train_split: str, share: float) -> tuple[str, str]:
    """Returns (train, development) parts of a training split.

    Where the data set has a development split of its own for the whole of `train_split`, as the
    paper's data sets and VTAB's tasks do, that one; otherwise the last part of `train_split`.

    Args:
        spec: of the data set.
        train_split: what the final model is trained on.
        share: of the images, in (0, 1), that the development split gets where it is cut here.
    """
    if spec.dev and train_split in ("train", "train800val200"):
        return spec.dev
    ranges = spec.ranges(train_split)
    size = sum(part.size for part in ranges)
    kept = size - max(1, round(share * size))
    if kept < 1:
        raise ValueError(
            f"Expected at least 2 images to split. Received: {train_split} with {size}"
        )
    first, second, seen = [], [], 0
    for part in ranges:
        boundary = min(max(kept - seen, 0), part.size) + part.start
        if boundary > part.start:
            first.append(f"{part.split}[{part.start}:{boundary}]")
        if boundary < part.stop:
            second.append(f"{part.split}[{boundary}:{part.stop}]")
        seen += part.size
    return "+".join(first), "+".join(second)
