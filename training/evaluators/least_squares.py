"""Few-shot linear evaluation: regularized least squares on frozen features (section 4.1).

The images of a few labeled examples per class are mapped by a frozen network to features
and a linear classifier onto {-1, 1}^K targets is solved in closed form, without training:

    W = argmin ||X W - Y||^2 + l2 ||W||^2 = (X'X + l2 I)^-1 X'Y = X'(XX' + l2 I)^-1 Y.

The paper leaves the details open; these are the ones of its authors' code: features are
standardized with the statistics of the chosen examples, a constant feature of 100 plays the
part of a bias that the penalty hardly touches, and l2 is fixed at 2^10. That code works in
float32, where the large constant costs three digits; here it is float64.
"""

import dataclasses
import warnings
from collections.abc import Sequence

import numpy as np

from keras_vit.training.evaluators.mean_deviation import MeanDeviation

SHOTS = (1, 5, 10, 25)
SEEDS = (0, 1, 2)
L2 = 2.0**10
# Older publications tried these instead of the fixed value.
L2_LIST = tuple(2.0**i for i in range(-10, 20))
BIAS = 100.0
STANDARD_DEVIATION_FLOOR = 1e-5


@dataclasses.dataclass(frozen=True)
class Result:
    """Accuracy of one linear classifier.

    Attributes:
        shots: examples per class that it was solved from.
        seed: which choice of examples.
        l2: strength of the penalty.
        accuracy: fraction in [0, 1] of the test examples whose largest score is at the label.
    """

    shots: int
    seed: int
    l2: float
    accuracy: float


class LeastSquares:
    """Least squares onto {-1, 1}^K for one choice of examples and any penalty.

    The eigenvalue decomposition of the smaller of X'X and XX' is computed once; each penalty
    then costs one matrix product.

    Args:
        features: (examples, dimensions) array.
        labels: (examples,) integers in [0, num_classes).
        num_classes: K, the number of columns of the targets.
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int):
        features = np.asarray(features, np.float64)
        self.mean = features.mean(axis=0)
        self.scale = features.std(axis=0) + STANDARD_DEVIATION_FLOOR
        x = self._standardize(features)
        y = 2.0 * np.eye(num_classes)[labels] - 1.0
        examples, dimensions = x.shape
        if examples >= dimensions:
            self._eigenvalues, self._left = np.linalg.eigh(x.T @ x)
            self._right = self._left.T @ (x.T @ y)
        else:
            self._eigenvalues, vectors = np.linalg.eigh(x @ x.T)
            self._left = x.T @ vectors
            self._right = vectors.T @ y

    def weights(self, l2: float) -> np.ndarray:
        """Returns W, (dimensions + 1, K) float64; the last row belongs to the constant feature."""
        if l2 <= 0:
            raise ValueError(f"Expected a positive l2, since X'X may be singular. Received: {l2}")
        return (self._left / (self._eigenvalues + l2)) @ self._right

    def scores(self, features: np.ndarray, l2: float) -> np.ndarray:
        """Returns the (examples, K) scores of `features`, (examples, dimensions)."""
        return self._standardize(np.asarray(features, np.float64)) @ self.weights(l2)

    def _standardize(self, features):
        standardized = (features - self.mean) / self.scale
        return np.pad(standardized, ((0, 0), (0, 1)), constant_values=BIAS)


def choose_examples(labels: np.ndarray, num_classes: int, seed: int) -> list[np.ndarray]:
    """Returns for each class a shuffled list of its indices; k shots are the first k of each.

    One generator shuffles the classes in order, so the examples of fewer shots are among those
    of more shots with the same seed.

    Args:
        labels: (examples,) integers.
        num_classes: number of lists returned; a class without examples gets an empty one.
        seed: of the choice.
    """
    rng = np.random.default_rng(seed)
    return [rng.permutation(np.flatnonzero(labels == label)) for label in range(num_classes)]


def evaluate(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    num_classes: int,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    l2: float | Sequence[float] = L2,
) -> list[Result]:
    """Returns the accuracy for every number of shots, seed and penalty.

    Args:
        train: (features, labels) the examples are chosen from: (n, dimensions) and (n,).
        test: (features, labels) that are classified, all of them.
        num_classes: number of classes; labels are integers below it.
        shots: examples per class. A class that has fewer gives all it has, and is warned of.
        seeds: choices of examples.
        l2: penalty, or several.
    """
    (x, y), (x_test, y_test) = train, test
    if not (np.isfinite(x).all() and np.isfinite(x_test).all()):
        raise ValueError("Expected finite features. Received: infinite or undefined values")
    fewest = np.bincount(y, minlength=num_classes).min()
    if fewest < max(shots):
        warnings.warn(
            f"Expected {max(shots)} examples of each class for {max(shots)} shots. Some class has "
            f"{fewest}, and gives all it has.",
            stacklevel=2,
        )
    penalties = [float(penalty) for penalty in np.atleast_1d(l2)]
    results = []
    for seed in seeds:
        candidates = choose_examples(y, num_classes, seed)
        for k in shots:
            chosen = np.concatenate([indices[:k] for indices in candidates])
            solution = LeastSquares(x[chosen], y[chosen], num_classes)
            for penalty in penalties:
                predicted = solution.scores(x_test, penalty).argmax(axis=1)
                accuracy = float(np.mean(predicted == y_test))
                results.append(Result(k, seed, penalty, accuracy))
    return results


def best_l2(results: Sequence[Sequence[Result]]) -> dict[int, float]:
    """Returns one penalty per number of shots for several data sets: the one of highest mean rank.

    The rule by which publications before the fixed penalty chose it: accuracies, averaged over
    seeds, are ranked within each data set, and the ranks averaged. It looks at test accuracies,
    so what it selects is an upper bound rather than an estimate.

    Args:
        results: for each data set what `evaluate` returned.
    """
    from scipy.stats import rankdata  # slow to import

    ranks: dict[int, dict[float, list[float]]] = {}
    for of_data_set in results:
        means = mean_accuracies(of_data_set)
        for k in sorted({shots for shots, _ in means}):
            accuracies = {l2: mean for (shots, l2), (mean, _) in means.items() if shots == k}
            # Equal accuracies share the mean of their ranks.
            for l2, rank in zip(accuracies, rankdata([*accuracies.values()]), strict=True):
                ranks.setdefault(k, {}).setdefault(l2, []).append(rank)
    # Of equally good penalties the largest is the safer choice.
    return {
        k: max(of_shots, key=lambda l2: (np.mean(of_shots[l2]), l2))
        for k, of_shots in ranks.items()
    }


def mean_accuracies(results: Sequence[Result]) -> dict[tuple[int, float], MeanDeviation]:
    """Returns {(shots, l2): mean and deviation over the seeds}."""
    accuracies: dict[tuple[int, float], list[float]] = {}
    for result in results:
        accuracies.setdefault((result.shots, result.l2), []).append(result.accuracy)
    return {key: MeanDeviation.of(values) for key, values in accuracies.items()}
