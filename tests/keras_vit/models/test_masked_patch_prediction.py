"""Masked patch prediction against the paper's numbers and its definition."""

import itertools
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models.masked_patch_prediction import (
    Corruption,
    PatchCorruption,
    PatchLoss,
    color_classes,
    color_of_class,
    targets_of,
)
from tests.tiny_vit import tiny_vit

to_numpy = keras.ops.convert_to_numpy


def encoder(**overrides):
    return tiny_vit(**{"image_size": (16, 24), "num_classes": None} | overrides)


@pytest.fixture
def images():
    return np.random.default_rng(0).uniform(-1, 1, (4, 16, 24, 3)).astype("float32")


@pytest.mark.parametrize(
    ("color", "expected"),
    [
        ((0, 0, 0), 0),
        ((255, 255, 255), 511),
        ((127.5, 127.5, 127.5), 292),
        ((200, 100, 50), 409),
        ((124, 116, 104), 219),
        ((31.9, 32, 64), 74),
    ],
)
def test_color_classes(color, expected):
    assert to_numpy(color_classes(np.array(color) / 255)) == expected


def test_middles_of_the_colors_belong_to_their_classes():
    middles = color_of_class(np.arange(512))
    np.testing.assert_array_equal(to_numpy(color_classes(middles)), np.arange(512))
    np.testing.assert_allclose(middles[1], [1 / 16, 1 / 16, 3 / 16])


@pytest.mark.parametrize(
    ("patches", "rate", "expected"),
    [(196, 0.5, (78, 10, 10)), (49, 0.5, (19, 2, 3)), (196, 0.15, (23, 3, 3)), (9, 1.0, (7, 1, 1))],
)
def test_how_many_patches_are_corrupted_and_how(patches, rate, expected):
    assert Corruption.of(patches, rate) == expected


def test_corruption_does_to_each_patch_what_it_should():
    rows, columns, channels = 7, 14, 5
    counts = Corruption.of(rows * columns)
    stem = np.random.default_rng(0).standard_normal((6, rows, columns, channels))
    stem = stem.astype("float32")
    layer = PatchCorruption(seed=1)
    corrupted, positions = (to_numpy(tensor) for tensor in layer(stem))
    mask = to_numpy(layer.mask)
    before, after = (x.reshape(6, rows * columns, channels) for x in (stem, corrupted))
    chosen = set()
    for image in range(6):
        assert len(set(positions[image])) == sum(counts)
        untouched = np.setdiff1d(np.arange(rows * columns), positions[image])
        np.testing.assert_array_equal(after[image, untouched], before[image, untouched])
        masked, replaced, kept = np.split(positions[image], np.cumsum(counts)[:2])
        assert (after[image, masked] == mask).all()
        np.testing.assert_array_equal(after[image, kept], before[image, kept])
        for place in replaced:
            sources = np.flatnonzero((before[image] == after[image, place]).all(axis=-1))
            assert len(sources) == 1 and sources[0] != place
        chosen.add(tuple(positions[image]))
    assert len(chosen) == 6


def test_a_patch_is_replaced_by_any_other_but_never_by_itself():
    layer = PatchCorruption(rate=1.0, seed=0)
    # Patches that are their own numbers, of which the ninth in a random order is replaced.
    stem = np.tile(np.arange(10, dtype="float32").reshape(1, 2, 5, 1), (2000, 1, 1, 1))
    corrupted, positions = (to_numpy(tensor) for tensor in layer(stem))
    assert layer.counts == (8, 1, 1)
    places = positions[:, 8]
    found = corrupted.reshape(2000, 10)[np.arange(2000), places]
    pairs = set(zip(places.tolist(), found.tolist(), strict=True))
    assert pairs == set(itertools.permutations(range(10), 2))


def test_targets_are_the_colors_of_cells():
    colors = np.random.default_rng(0).integers(0, 512, (4, 4))
    pixels = (np.kron(color_of_class(colors), np.ones((2, 2, 1))) * 2 - 1).astype("float32")
    for target, expected in (
        ("downsized", colors.ravel()),
        ("mean_color", to_numpy(color_classes((pixels.mean((0, 1)) + 1) / 2))[None]),
    ):
        found = to_numpy(targets_of(target, pixels[None, None]))
        np.testing.assert_array_equal(found[0, 0], expected)


def test_losses_are_those_at_the_positions(images):
    rng, positions = np.random.default_rng(1), np.array([[0, 7], [3, 23], [11, 2], [5, 6]], "int32")
    patch = images[1, 12:16, 20:24]  # number 23
    pixels = rng.normal(size=(4, 2, 48)).astype("float32")
    losses = to_numpy(PatchLoss("pixels", (4, 6), 4)(images, positions, pixels))
    assert losses[1, 1] == pytest.approx(((patch.ravel() - pixels[1, 1]) ** 2).mean(), rel=1e-5)
    logits = rng.normal(size=(4, 2, 512)).astype("float32")
    losses = to_numpy(PatchLoss("mean_color", (4, 6), 4)(images, positions, logits))
    chosen = int(to_numpy(color_classes((patch.mean((0, 1)) + 1) / 2)))
    expected = np.log(np.exp(logits[1, 1]).sum()) - logits[1, 1, chosen]
    assert losses[1, 1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("target", "overrides", "patches"),
    [
        ("mean_color", {"dtype": "mixed_bfloat16"}, 24),
        ("downsized", {"classifier": "map"}, 24),
        ("mean_color", {"resnet": {"num_layers": ()}, "patch_size": 2}, 6),
    ],
)
def test_an_untrained_model_guesses_one_of_512_colors_in_float32(
    images, target, overrides, patches
):
    masked = keras_vit.MaskedPatchPrediction(encoder(**overrides), target)
    policy = overrides.get("dtype", "float32")
    assert masked.get_layer("corruption").compute_dtype == policy.removeprefix("mixed_")
    losses = masked(images)
    assert losses.shape == (4, patches // 2) and losses.dtype == "float32"
    np.testing.assert_allclose(to_numpy(losses), np.log(512), rtol=1e-5)


def test_corruption_precedes_positions_and_output_follows_the_encoder(images):
    """With nothing corrupted but one patch kept as it is, the encoder computes as always."""
    model = encoder(num_classes=None)
    masked = keras_vit.MaskedPatchPrediction(model, "pixels", corruption_rate=1 / 24)
    assert masked.get_layer("corruption").counts == (1, 0, 0)
    kernel = np.random.default_rng(2).normal(size=(16, 48)).astype("float32")
    masked.get_layer("prediction").kernel.assign(kernel)
    results = keras.Model(masked.input, masked.endpoints)(images)
    positions, predictions = to_numpy(results["positions"]), to_numpy(results["predictions"])

    embedding = model.get_layer("embedding")
    tokens = to_numpy(embedding(images)).reshape(4, 24, 16)
    for image in range(4):
        tokens[image, positions[image]] = to_numpy(masked.get_layer("corruption").mask)
    x = model.get_layer("class_token")(tokens)
    x = model.get_layer("position_embedding")(x)
    for block in model.blocks:
        x = block(x)
    x = to_numpy(model.get_layer("encoder_norm")(x))[:, 1:]
    expected = np.stack([x[i, positions[i]] @ kernel for i in range(4)])
    np.testing.assert_allclose(predictions, expected, atol=1e-4)


def test_sample_weights_choose_images():
    masked = keras_vit.MaskedPatchPrediction(encoder(), "pixels")
    losses = np.random.default_rng(0).uniform(size=(4, 12)).astype("float32")
    assert to_numpy(masked.compute_loss(y_pred=losses)) == pytest.approx(losses.mean())
    weighted = masked.compute_loss(y_pred=losses, sample_weight=np.array([0, 2, 0, 1]))
    expected = (2 * losses[1].mean() + losses[3].mean()) / 4
    assert to_numpy(weighted) == pytest.approx(expected)


def test_fit_learns_adds_penalties_of_layers_and_takes_weights_of_images(images):
    masked = keras_vit.MaskedPatchPrediction(encoder(), "pixels", seed=0)
    optimizer = keras.optimizers.Adam(3e-3)
    # Else its variables are made while the step is traced, which is then traced twice.
    optimizer.build(masked.trainable_variables)
    # Compiling takes TensorFlow longer than the few steps, and JAX is slow without.
    masked.compile(optimizer, jit_compile=keras.backend.backend() == "jax")
    before, labels = masked.get_weights(), np.zeros(4)
    masked.fit(images, labels, sample_weight=np.zeros(4), verbose=0)
    alike = zip(before, masked.get_weights(), strict=True)
    assert all(np.array_equal(old, new) for old, new in alike if old.dtype == np.float32)
    flat = np.broadcast_to(images[:, :1, :1], images.shape)
    losses = masked.fit(flat, labels, sample_weight=labels + 1, epochs=20, verbose=0).history[
        "loss"
    ]
    assert losses[-1] < 0.8 * losses[0]
    masked.get_layer("prediction").kernel.assign(np.ones((16, 48)))
    masked.get_layer("prediction").kernel.regularizer = keras.regularizers.L2(2.0)
    penalized = masked.compute_loss(y_pred=np.zeros((4, 12), "float32"))
    assert to_numpy(penalized) == pytest.approx(2 * 16 * 48)


def test_saved_model_comes_back_with_its_encoder(tmp_path, images):
    masked = keras_vit.MaskedPatchPrediction(
        encoder(classifier="gap"), "downsized", corruption_rate=0.25, seed=3
    )
    masked.save(tmp_path / "masked.keras")
    with zipfile.ZipFile(tmp_path / "masked.keras") as archive:
        assert b"shared_object_id" not in archive.read("config.json")  # an address in memory
    again = keras.saving.load_model(tmp_path / "masked.keras")
    assert again.arguments == {"target": "downsized", "corruption_rate": 0.25, "seed": 3}
    assert again.encoder.arguments == masked.encoder.arguments
    np.testing.assert_array_equal(to_numpy(again.encoder(images)), to_numpy(masked.encoder(images)))
    assert len(again.weights) == len(masked.weights)
    for left, right in zip(again.weights, masked.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(left), to_numpy(right))


def test_the_encoder_alone_is_trained():
    model = encoder(num_classes=7)
    masked = keras_vit.MaskedPatchPrediction(model)
    trained = {id(weight) for weight in masked.trainable_weights}
    own = {id(weight) for weight in model.trainable_weights}
    head = {id(weight) for weight in model.get_layer("head").weights}
    assert own - trained == head
    assert len(trained - own) == 3


@pytest.mark.parametrize(
    ("overrides", "arguments", "message"),
    [
        ({}, {"target": "color"}, "'color'"),
        ({"patch_size": 2}, {"target": "downsized"}, "Received: 2 pixels"),
        ({}, {"corruption_rate": 0.0}, r"rate=0\.0"),
        ({"resnet": {"num_layers": ()}, "image_size": (16, 22)}, {}, "16 x 16 pixels"),
        ({"in_channels": 4}, {}, "in_channels=4"),
    ],
)
def test_mistakes_are_named(overrides, arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.MaskedPatchPrediction(encoder(**overrides), **arguments)
    with pytest.raises(ValueError, match="must be a keras_vit"):
        keras_vit.MaskedPatchPrediction(keras.Sequential([keras.Input((4,))]))
