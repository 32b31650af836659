import json

import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.analysis import class_maps
from keras_vit.analysis.class_maps import METHODS, _probed
from tests.conftest import GOLDEN
from tests.keras_vit.small import forward, make_images, make_vit, make_wide, to_numpy

IMAGES = make_images(2, 16, 24)


@pytest.mark.parametrize("method", METHODS)
def test_maps_are_those_of_the_authors_code(
    method, cases, golden, build_case, write_case, load_case, tmp_path
):
    expected = json.loads((GOLDEN / "class_maps.json").read_text())
    case = cases[expected["case"]]
    model = build_case(case)
    load_case(model, case, write_case(case, tmp_path))
    maps = class_maps(model, golden.images_of(case), expected["classes"], method, batch_size=2)
    model.class_names = [f"class {number}" for number in range(model.output_shape[-1])]
    names = [model.class_names[number] for number in expected["classes"]]
    by_name = class_maps(model, golden.images_of(case), names, method, batch_size=2)
    np.testing.assert_allclose(by_name, maps, atol=1e-6)
    with pytest.raises(ValueError, match="Expected a list of one class in"):
        class_maps(model, golden.images_of(case), ["class 99"] * len(names), method)
    reference = np.array(expected[method])
    reference = reference / reference.max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(maps, reference, atol=1e-5)


@pytest.mark.rows(
    {"classifier": "gap"},
    {"classifier": "map", "register_tokens": 1},
    {"classifier": "token_gap", "register_tokens": 1},
    {"position_placement": "every", "mlp": "swiglu"},
)
def test_gradients_are_those_of_finite_differences_in_every_attention(overrides):
    model = make_vit(image_size=(8, 12), **overrides)
    image, label = make_images(1, 8, 12), 3
    shape = (2, *keras_vit.analysis.attention_tensors(model)[0].shape[1:])
    probed = _probed(model, [model.endpoints["logits"]], shape, True)
    steps = 1e-2 * np.eye(np.prod(shape), dtype="float32").reshape(-1, *shape)
    up, down = (
        probed.predict([np.repeat(image, len(steps), 0), side * steps], batch_size=256, verbose=0)
        for side in (1, -1)
    )
    logits, attention = forward(probed, [image, np.zeros((1, *shape), "float32")])
    np.testing.assert_allclose(logits, forward(model, image), atol=1e-5)
    gradient = ((up[0] - down[0])[:, label] / 2e-2).reshape(shape)
    tokens, first = shape[-1], model.num_prefix_tokens
    rolled = np.eye(tokens)
    for layer in np.maximum(gradient * attention[0], 0).mean(axis=1):
        rolled = rolled + layer @ rolled
    patches = (np.arange(tokens) >= first) / (tokens - first)
    row = {"gap": patches, "token_gap": (np.eye(tokens)[0] + patches) / 2}
    row = row.get(overrides.get("classifier"), np.eye(tokens)[0])
    if overrides.get("classifier") == "map":
        pool = model.get_layer("pool")
        encoded = forward(keras.Model(model.input, model.endpoints["encoded"]), image)
        row = to_numpy(pool.probabilities(pool.probe, encoded[:, first:])).mean(axis=1)[0, 0]
        row = np.pad(row, (first, 0))
    drawn = (row @ (rolled - np.eye(tokens)))[first:]
    expected = (drawn / drawn.max()).reshape(1, *model.grid_size)
    np.testing.assert_allclose(class_maps(model, image, [label]), expected, atol=2e-3)


def test_the_most_probable_class_is_the_default_and_without_a_head_there_is_no_map():
    model = make_wide(dtype="mixed_bfloat16")
    best = model.predict(IMAGES, verbose=0).argmax(axis=-1)
    for method in METHODS:
        maps = class_maps(model, IMAGES, best, method)
        assert maps.dtype == np.float32 and maps.shape == (2, 4, 6)
        np.testing.assert_array_equal(class_maps(model, IMAGES, None, method), maps)
    model.get_layer("head").kernel.assign(np.zeros((16, 5)))
    assert not class_maps(model, IMAGES).any()
    for arguments, expected in (
        (
            (model, IMAGES, [0]),
            r"or its name, for each of 2 images\. Received: \[0\]",
        ),
        ((model, IMAGES, [0, 5]), r"Received: \[0, 5\]"),
        ((model, IMAGES, [0, -1]), r"Received: \[0, -1\]"),
        ((model, IMAGES, [0.5, 1]), r"Received: \[0\.5, 1\]"),
        ((model, IMAGES[:0], []), "at least one image"),
        ((model, 99 * IMAGES, [0, 1]), r"in \[-1, 1\]"),
        ((model, IMAGES, [0, 1], "lrp"), "must be one of"),
        ((make_vit(num_classes=None), IMAGES), "one row of logits"),
        ((make_vit(classifier="gap", attention="axial"), IMAGES), "one map for every row"),
        ((keras.Sequential([keras.Input((16, 16, 3))]), IMAGES), "a VisionTransformer"),
    ):
        with pytest.raises(ValueError, match=expected):
            class_maps(*arguments)


@pytest.mark.long
def test_on_a_canvas_of_two_digits_the_map_of_each_class_points_to_its_digit():
    photos, labels = load_digits(n_class=5, return_X_y=True)
    photos, rng = photos.reshape(-1, 8, 8).astype("float32") / 8 - 1, np.random.default_rng(0)
    count, shown = 3064, 64
    # Every quarter is empty as often as not: so an empty patch must speak for no class. Where two
    # of four always are, nothing in training says so.
    filled, digits = rng.random((count, 4)) < 0.5, rng.integers(0, len(photos), (count, 4))
    places = np.stack([rng.permutation(4)[:2] for _ in range(shown)])
    filled[:shown] = np.eye(4, dtype=bool)[places].any(axis=1)
    canvases = np.where(filled[..., None, None], photos[digits], -1).reshape(count, 2, 2, 8, 8)
    canvases = canvases.transpose(0, 1, 3, 2, 4).reshape(count, 16, 16, 1).repeat(3, axis=-1)
    targets = (np.eye(5)[labels[digits]] * filled[..., None]).max(axis=1)
    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=1, hidden_size=48, mlp_dim=96, num_heads=4, num_layers=1,
        num_classes=5, resnet={"num_layers": (1,)},
    )  # fmt: skip
    model.compile("adamw", keras.losses.BinaryCrossentropy(from_logits=True))
    model.optimizer.learning_rate = 2e-3
    model.fit(canvases[shown:], targets[shown:], batch_size=64, epochs=5, verbose=0)
    right = (model.predict(canvases[:shown], verbose=0) > 0) == targets[:shown]
    assert right.mean() > 0.97 and model.grid_size == (4, 4)
    classes = np.take_along_axis(labels[digits[:shown]], places, axis=1)
    two = np.flatnonzero(classes[:, 0] != classes[:, 1])
    for method in METHODS:
        shares = np.empty((2, 2, len(two)))
        for digit in range(2):
            maps = class_maps(model, canvases[two], classes[two, digit], method, batch_size=64)
            boxes = maps.reshape(-1, 2, 2, 2, 2).sum(axis=(2, 4)).reshape(-1, 4)
            boxes /= np.maximum(boxes.sum(axis=1, keepdims=True), 1e-9)
            shares[digit] = np.take_along_axis(boxes, places[two], axis=1).T
        own, other = shares[[0, 1], [0, 1]].mean(), shares[[0, 1], [1, 0]].mean()
        assert own > 0.9 and other < 0.1
