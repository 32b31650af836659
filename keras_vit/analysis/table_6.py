"""The compute column of Table 6, as data."""

from typing import NamedTuple

JFT_IMAGES = 303e6


class ScalingRow(NamedTuple):
    """A row of Table 6: pre-training on JFT-300M at 224 pixels.

    Attributes:
        name: of `keras_vit.variants`.
        epochs: over JFT's 303 million images.
        exaflops: as published in the paper's second version. The first printed
            about three times as much for the Vision Transformers.
        misprint: what is wrong with the published number, or "".
    """

    name: str
    epochs: int
    exaflops: int
    misprint: str = ""


TABLE_6 = (
    ScalingRow("ViT-B/32", 7, 55),
    ScalingRow("ViT-B/16", 7, 224),
    ScalingRow("ViT-L/32", 7, 196),
    ScalingRow("ViT-L/16", 7, 783),
    ScalingRow("ViT-L/16", 14, 1567),
    ScalingRow("ViT-H/14", 14, 4262),
    ScalingRow("BiT-R50x1", 7, 50),
    ScalingRow("BiT-R50x2", 7, 199),
    ScalingRow("BiT-R101x1", 7, 96),
    ScalingRow("BiT-R152x1", 7, 141),
    ScalingRow("BiT-R152x2", 7, 563),
    ScalingRow("BiT-R152x2", 14, 1126),
    ScalingRow("BiT-R200x3", 14, 3306),
    ScalingRow("R50+ViT-B/32", 7, 106),
    ScalingRow("R50+ViT-B/16", 7, 274),
    ScalingRow("R50+ViT-L/32", 7, 246),
    ScalingRow("R50+ViT-L/16", 7, 859, "half of the same model's 1668 for 14 epochs is 834"),
    ScalingRow("R50+ViT-L/16", 14, 1668),
)
