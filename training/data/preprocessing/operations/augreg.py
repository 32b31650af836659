"""The strengths of AugReg (Steiner et al., 2021), which combine RandAugment with mixup."""

from training.data.preprocessing.operation import operation
from training.recipes.augreg_strengths import STRENGTHS


@operation("augreg", stage="text")
def augreg(strength: str) -> str:
    """RandAugment and mixup as in one of AugReg's seven strengths, "none" to "strong2".

    Stands where RandAugment does, after the flip and before `value_range`.
    """
    if strength not in STRENGTHS:
        raise ValueError(f"unknown strength {strength!r}, expected one of {list(STRENGTHS)}")
    row = STRENGTHS[strength]
    texts = []
    if row.randaugment:
        texts.append("randaugment({}, {})".format(*row.randaugment))
    if row.mixup_p:
        texts.append(f"mixup({row.mixup_p})")
    return "|".join(texts)
