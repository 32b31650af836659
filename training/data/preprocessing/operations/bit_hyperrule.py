"""BiT-HyperRule (Kolesnikov et al., 2020): the resolution, by the size of a data set's images."""

from training.data.preprocessing.operation import operation

_SMALL_AREA = 96 * 96


def resolution(height: int, width: int) -> tuple[int, int]:
    """Returns (resize, crop): images below 96×96 pixels 160 and 128, all others 512 and 480.

    The numbers are those of the released code; the text of the paper has 448 and 384 for large
    images of all but its largest models.
    """
    return (160, 128) if height * width < _SMALL_AREA else (512, 480)


@operation("bit_train", stage="text")
def bit_train(height: int, width: int, flip: bool = True) -> str:
    """BiT's training transform for images of about `height`×`width`: square resize, crop, flip.

    Leave the flip out where it changes the label. (BiT's TensorFlow code flips every training
    image and no test image, an oversight that is not followed here.)
    """
    resize, crop = resolution(height, width)
    return f"resize({resize})|random_crop({crop})" + ("|flip_lr" if flip else "")


@operation("bit_eval", stage="text")
def bit_eval(height: int, width: int) -> str:
    """BiT's evaluation transform: a square resize to the size of the training crop."""
    return f"resize({resolution(height, width)[1]})"
