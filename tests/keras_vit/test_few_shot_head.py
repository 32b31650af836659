import sys
import tracemalloc

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.few_shot_head import BIAS, L2, LeastSquares
from tests.keras_vit.small import endpoints_of, make_images, make_resnet, make_vit, to_numpy

IMAGES = make_images(7)
LABELS = ["owl", "crow", "owl", "heron", "crow", "owl", "heron"]


@pytest.mark.rows(
    {"num_classes": 5},
    {"num_classes": None},
    {"representation_size": 8},
    {"classifier": "distilled"},
)
def test_the_heads_logits_are_the_normal_equations(overrides):
    model = make_vit(**overrides)
    before = [to_numpy(weight) for weight in model.weights]
    taught = keras_vit.few_shot_head(model, IMAGES, LABELS)
    assert taught.class_names == ("crow", "heron", "owl")
    features = endpoints_of(model, IMAGES)["representation"].astype("float64")
    standardized = (features - features.mean(0)) / (features.std(0) + 1e-5)
    x = np.concatenate([standardized, np.full((7, 1), BIAS)], axis=1)
    y = np.array([[2.0 * (name == each) - 1 for name in taught.class_names] for each in LABELS])
    solved = np.linalg.solve(x.T @ x + L2 * np.eye(x.shape[1]), x.T @ y)
    np.testing.assert_allclose(taught.predict(IMAGES, verbose=0), x @ solved, atol=1e-4)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)
    numbers = keras_vit.few_shot_head(model, IMAGES, [2, 0, 2, 1, 0, 2, 1])
    assert numbers.class_names is None
    np.testing.assert_array_equal(
        *(to_numpy(m.get_layer("head").kernel) for m in (numbers, taught))
    )


def test_many_examples_never_lie_in_memory_as_float64(monkeypatch):
    monkeypatch.setattr(sys.modules[LeastSquares.__module__], "_AT_ONCE", 500)
    features, labels = np.ones((50_000, 16), "float32"), np.zeros(50_000, int)
    tracemalloc.start()
    try:
        LeastSquares(features, labels, 2).classes(features, [L2])
        assert tracemalloc.get_traced_memory()[1] < features.nbytes
    finally:
        tracemalloc.stop()


def test_a_saved_one_predicts_and_wrong_labels_are_refused(tmp_path):
    model = make_resnet(num_classes=None)
    images = make_images(4, 32, 32)
    taught = keras_vit.few_shot_head(model, images, ["a", "b", "a", "b"], l2=1.0)
    taught.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert [each[0][0] for each in keras_vit.predict(again, images)] == ["a", "b", "a", "b"]
    for wrong, message in (
        (["a", "b", "a"], "for each of 4 images"),
        ([0.5, 1, 0, 1], "for each of 4 images"),
        (["a"] * 4, "two classes or more"),
        ([-1, 0, 1, 0], "two classes or more"),
    ):
        with pytest.raises(ValueError, match=message):
            keras_vit.few_shot_head(model, images, wrong)
    with pytest.raises(ValueError, match="one row of features"):
        keras_vit.few_shot_head(make_vit(classifier="unpooled"), IMAGES, LABELS)
