"""A linear head from a few labeled photos, in closed form, without training (section 4.1).

The images of a few labeled examples per class are mapped by a frozen network to features, and a
linear classifier onto {-1, 1}^K targets is solved:

    W = argmin ||X W - Y||^2 + l2 ||W||^2 = (X'X + l2 I)^-1 X'Y = X'(XX' + l2 I)^-1 Y.

The paper leaves the details open; these are the ones of its authors' code: features are
standardized with the statistics of the chosen examples, a constant feature of 100 plays the
part of a bias that the penalty hardly touches, and l2 is fixed at 2^10. That code works in
float32, where the large constant costs three digits; here it is float64.
"""

import os
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.models.image_model import HEADS, ImageModel, require_kind
from keras_vit.predict_photos import prepared_photos
from keras_vit.type_hints import Tensor

L2 = 2.0**10
BIAS = 100.0
STANDARD_DEVIATION_FLOOR = 1e-5
_AT_ONCE = 2**15


class LeastSquares:
    """Least squares onto {-1, 1}^K, K = `num_classes`, for one choice of examples and any penalty.

    The eigenvalue decomposition of the smaller of X'X and XX' is computed once; each penalty
    then costs one matrix product. Features are (examples, dimensions), labels (examples,) integers
    in [0, K).
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int):
        # A million examples in float64 would not fit in memory: both are read in blocks.
        features, targets = np.asarray(features), 2.0 * np.eye(num_classes) - 1.0
        self.mean = features.mean(axis=0, dtype=np.float64)
        squares = sum(np.square(rows - self.mean).sum(axis=0) for rows in _blocks(features))
        self.scale = np.sqrt(squares / len(features)) + STANDARD_DEVIATION_FLOOR
        if len(features) > features.shape[1]:
            gram = products = 0.0
            for rows, numbers in zip(_blocks(features), _blocks(labels), strict=True):
                x = self._standardize(rows)
                gram, products = gram + x.T @ x, products + x.T @ targets[numbers]
            self._eigenvalues, self._left = np.linalg.eigh(gram)
            self._right = self._left.T @ products
        else:
            x, y = self._standardize(features), targets[labels]
            self._eigenvalues, vectors = np.linalg.eigh(x @ x.T)
            self._left = x.T @ vectors
            self._right = vectors.T @ y

    def weights(self, l2: float) -> np.ndarray:
        """Returns W, (dimensions + 1, K) float64; the last row belongs to the constant feature."""
        if l2 <= 0:
            raise ValueError(f"Expected a positive l2, since X'X may be singular. Received: {l2}")
        return (self._left / (self._eigenvalues + l2)) @ self._right

    def head(self, l2: float = L2) -> tuple[np.ndarray, np.ndarray]:
        """Returns the same as a layer of features: kernel (dimensions, K), bias (K,), float64."""
        weights = self.weights(l2)
        kernel = weights[:-1] / self.scale[:, None]
        return kernel, BIAS * weights[-1] - self.mean @ kernel

    def scores(self, features: np.ndarray, l2: float) -> np.ndarray:
        """Returns the (examples, K) scores of `features`, (examples, dimensions)."""
        return self._standardize(np.asarray(features, np.float64)) @ self.weights(l2)

    def classes(self, features: np.ndarray, penalties: Sequence[float]) -> np.ndarray:
        """Returns the class of the largest score with each penalty, (penalties, examples)."""
        weights = [self.weights(l2) for l2 in penalties]
        blocks = map(self._standardize, _blocks(features))
        found = [[(rows @ each).argmax(axis=1) for each in weights] for rows in blocks]
        return np.concatenate(found, axis=1)

    def _standardize(self, features):
        standardized = (features - self.mean) / self.scale
        return np.pad(standardized, ((0, 0), (0, 1)), constant_values=BIAS)


def _blocks(rows):
    return np.array_split(rows, len(rows) // _AT_ONCE + 1)


def few_shot_head(
    model: keras.Model,
    images: Tensor | Sequence[str | os.PathLike],
    labels: Sequence[int] | Sequence[str],
    *,
    l2: float = L2,
    batch_size: int = 8,
) -> keras.Model:
    """Returns the model with a head for the classes of a few labeled photos, without training.

    Its logits are the scores of the paper's few-shot evaluation, near 1 for the right class and
    -1 for others; what softmax makes of them ranks classes and is no confidence.

    Args:
        model: a `VisionTransformer`, `ResNetV2` or `AxialResNet`, with or without a head. It stays
            as it is.
        images: as of `keras_vit.predict`.
        labels: one for each image: names, of which the sorted set are the classes, or their
            numbers from 0 on.
        l2: float, the penalty.
        batch_size: int, images computed at once.

    Returns:
        A model of the same weights, `num_classes` and `class_names` those of the labels.

    Raises:
        ValueError: if the model gives no row of features for an image, there is not one label for
            each image, or fewer than two classes.

    Examples:
        >>> model = keras_vit.few_shot_head(model, ["a.jpg", "b.jpg"], ["crow", "owl"])
        >>> keras_vit.predict(model, "c.jpg")
    """
    require_kind(model, ImageModel, "a model of keras_vit")
    representation = model.endpoints.get("representation")
    if representation is None or len(representation.shape) != 2:
        raise ValueError(
            f"Expected a model with one row of features for an image. Received: {model.name}."
        )
    photos = prepared_photos(model, images)
    given = np.asarray(labels)
    names, numbers = np.unique(given, return_inverse=True)
    if given.shape != (len(photos),) or given.dtype.kind not in "iuU":
        raise ValueError(
            f"Expected a name or number for each of {len(photos)} images. Received: {labels!r}"
        )
    if given.dtype.kind != "U":
        names, numbers = np.arange(max(given) + 1), given
    if len(names) < 2 or np.min(numbers) < 0:
        raise ValueError(f"Expected labels of two classes or more. Received: {labels!r}")
    features = model.up_to("representation").predict(photos, batch_size=batch_size, verbose=0)
    kernel, bias = LeastSquares(features, numbers, len(names)).head(l2)
    config = {**model.get_config(), "num_classes": len(names)}
    for name in ("class_names", "activation", "thresholds"):
        config.pop(name, None)
    taught = type(model).from_config(config)
    for layer in model.layers:
        if layer.name not in HEADS and layer.weights:
            taught.get_layer(layer.name).set_weights(layer.get_weights())
    # Two heads, each of its part of the features, give their mean.
    heads = [layer for layer in taught.layers if layer.name in HEADS]
    for head, part in zip(heads, np.split(kernel, len(heads)), strict=True):
        head.set_weights([len(heads) * part, bias])
    if given.dtype.kind == "U":
        taught.class_names = names.tolist()
    return taught
