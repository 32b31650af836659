"""Classification accuracy and loss of a model of any kind, exact on every image of a split."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ..inference.image_function import compiled_function
from ..tasks.classification import evaluation


def evaluate(
    model: Callable,
    dataset: Iterable[Mapping],
    *,
    loss: str = "softmax",
    classes: Sequence[int] | None = None,
) -> dict[str, int | float | np.ndarray]:
    """Returns the accuracy of a model of any kind on every image of a data set.

    Args:
        model: a `keras.Model`, or any callable from a batch of images to (batch, classes) logits:
            a loaded TF-Hub module, a `hub.KerasLayer`, a function.
        dataset: batches of `{"image", "label", "counted"}`; label (batch, classes), positive at
            each label of the image; counted (batch,), 0 for padding, may be absent. An image
            without any label is not counted.
        loss: `"softmax"` or `"sigmoid"`, the loss that is averaged over the counted images.
        classes: of `class_order`: the output of the model for each class of the labels.

    Returns:
        `count`, the number of images; `top1`, `top5` and the mean `loss`; `confusion`, (classes,
        classes) integers: row the label, column the prediction, over images with one label.

    Raises:
        ValueError: if no image counts, or logits are not finite or of another shape than labels.
    """
    function = compiled_function(model)
    in_order = function if classes is None else lambda images: function(images)[:, classes]
    return evaluation.measure(in_order, dataset, loss)
