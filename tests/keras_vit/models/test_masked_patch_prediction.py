import itertools
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers.patch_embedding import cut_patches
from keras_vit.models import masked_patch_prediction as module
from keras_vit.models.masked_patch_prediction import PatchCorruption, corruption_of
from tests.keras_vit.small import assert_same, endpoints_of, make_images, to_numpy
from tests.tiny_vit import tiny_vit

IMAGES = make_images(4, 16, 24)


def encoder(**overrides):
    return tiny_vit(**{"image_size": (16, 24), "num_classes": None} | overrides)


def test_color_classes_their_middles_and_targets():
    colors = [[0] * 3, [255] * 3, [127.5] * 3, [200, 100, 50], [124, 116, 104], [31.9, 32, 64]]
    classes = to_numpy(module.color_classes(np.array(colors) / 255))
    np.testing.assert_array_equal(classes, [0, 511, 292, 409, 219, 74])
    middles = module.color_of_class(np.arange(512))
    np.testing.assert_array_equal(to_numpy(module.color_classes(middles)), np.arange(512))
    np.testing.assert_allclose(middles[1], [1 / 16, 1 / 16, 3 / 16])
    colors = np.random.default_rng(0).integers(0, 512, (4, 4))
    pixels = (np.kron(module.color_of_class(colors), np.ones((2, 2, 1))) * 2 - 1).astype("float32")
    mean = to_numpy(module.color_classes((pixels.mean((0, 1)) + 1) / 2))
    for target, expected in (("downsized", colors.ravel()), ("mean_color", mean[None])):
        found = to_numpy(module.targets_of(target, pixels[None, None]))
        np.testing.assert_array_equal(found[0, 0], expected)


def test_how_many_patches_are_corrupted_and_how():
    found = [corruption_of(*of) for of in ((196, 0.5), (49, 0.5), (196, 0.15), (9, 1.0))]
    assert found == [(78, 10, 10), (19, 2, 3), (23, 3, 3), (7, 1, 1)]


def test_corruption_does_to_each_patch_what_it_should():
    layer, images = PatchCorruption(seed=0), np.arange(6000)
    # Patches that are their own numbers.
    stem = np.arange(20, dtype="float32").reshape(1, 4, 5, 1) * np.ones((6000, 1, 1, 2), "float32")
    corrupted, positions = (to_numpy(tensor) for tensor in layer(stem))
    assert layer.counts == (8, 1, 1) and positions.shape == (6000, 10)
    assert (np.diff(np.sort(positions)) > 0).all() and len(np.unique(positions, axis=0)) > 5900
    found, expected = (each.reshape(6000, 20, 2) for each in (corrupted, stem))
    expected[images[:, None], positions[:, :8]] = to_numpy(layer.mask)
    places = positions[:, 8]
    others = expected[images, places] = found[images, places]
    np.testing.assert_array_equal(found, expected)
    # By any other, but never by itself.
    pairs = zip(places.tolist(), others[:, 0].tolist(), strict=True)
    assert set(pairs) == set(itertools.permutations(range(20), 2))


def test_losses_are_those_at_the_positions():
    rng, positions = np.random.default_rng(1), np.array([[0, 7], [3, 23], [11, 2], [5, 6]], "int32")
    patches, patch = cut_patches(IMAGES, (4, 6), 4), IMAGES[1, 12:16, 20:24]  # number 23
    pixels = rng.standard_normal((4, 2, 48), "float32")
    losses = to_numpy(module.patch_losses("pixels", patches, positions, pixels))
    assert losses[1, 1] == pytest.approx(((patch.ravel() - pixels[1, 1]) ** 2).mean(), rel=1e-5)
    logits = rng.standard_normal((4, 2, 512), "float32")
    losses = to_numpy(module.patch_losses("mean_color", patches, positions, logits))
    chosen = int(to_numpy(module.color_classes((patch.mean((0, 1)) + 1) / 2)))
    expected = np.log(np.exp(logits[1, 1]).sum()) - logits[1, 1, chosen]
    assert losses[1, 1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.rows(
    ("mean_color", {"dtype": "mixed_bfloat16"}, 24),
    ("downsized", {"classifier": "map"}, 24),
    ("mean_color", {"resnet": {"num_layers": ()}, "patch_size": 2}, 6),
)
def test_an_untrained_model_guesses_one_of_512_colors_in_float32(target, overrides, patches):
    masked = keras_vit.MaskedPatchPrediction(encoder(**overrides), target)
    policy = overrides.get("dtype", "float32")
    assert masked.get_layer("corruption").compute_dtype == policy.removeprefix("mixed_")
    losses = masked(IMAGES)
    assert losses.shape == (4, patches // 2)
    assert keras.backend.standardize_dtype(losses.dtype) == "float32"
    np.testing.assert_allclose(to_numpy(losses), np.log(512), rtol=1e-5)


def test_corruption_precedes_positions_and_output_follows_the_encoder():
    """With nothing corrupted but one patch, the encoder computes as always."""
    model = encoder(num_classes=None)
    masked = keras_vit.MaskedPatchPrediction(model, "pixels", corruption_rate=1 / 24)
    assert masked.get_layer("corruption").counts == (1, 0, 0)
    kernel = np.random.default_rng(2).normal(size=(16, 48)).astype("float32")
    masked.get_layer("prediction").kernel.assign(kernel)
    results = endpoints_of(masked, IMAGES)
    positions = results["positions"]
    tokens = to_numpy(model.get_layer("embedding")(IMAGES)).reshape(4, 24, 16)
    for image in range(4):
        tokens[image, positions[image]] = to_numpy(masked.get_layer("corruption").mask)
    names = ["class_token", "position_embedding", *(b.name for b in model.blocks), "encoder_norm"]
    for name in names:
        tokens = to_numpy(model.get_layer(name)(tokens))
    expected = np.stack([tokens[i, 1 + positions[i]] @ kernel for i in range(4)])
    np.testing.assert_allclose(results["predictions"], expected, atol=1e-4)


def test_fit_learns_adds_penalties_of_layers_and_takes_weights_of_images():
    masked = keras_vit.MaskedPatchPrediction(encoder(), "pixels", seed=0)
    losses = np.random.default_rng(0).uniform(size=(4, 12)).astype("float32")
    assert to_numpy(masked.compute_loss(y_pred=losses)) == pytest.approx(losses.mean())
    weighted = masked.compute_loss(y_pred=losses, sample_weight=np.array([0, 2, 0, 1]))
    assert to_numpy(weighted) == pytest.approx((2 * losses[1].mean() + losses[3].mean()) / 4)
    optimizer = keras.optimizers.Adam(3e-3)
    # Else its variables are made while the step is traced, which is then traced twice.
    optimizer.build(masked.trainable_variables)
    # Compiling takes TensorFlow longer than the few steps, and JAX is slow without.
    masked.compile(optimizer, jit_compile=keras.backend.backend() == "jax")
    before, labels = masked.get_weights(), np.zeros(4)
    masked.fit(IMAGES, labels, sample_weight=np.zeros(4), verbose=0)
    assert all(map(np.array_equal, before, masked.get_weights()))
    flat = np.broadcast_to(IMAGES[:, :1, :1], IMAGES.shape)
    fit = masked.fit(flat, labels, sample_weight=labels + 1, epochs=20, verbose=0)
    assert fit.history["loss"][-1] < 0.8 * fit.history["loss"][0]
    masked.get_layer("prediction").kernel.assign(np.ones((16, 48)))
    masked.get_layer("prediction").kernel.regularizer = keras.regularizers.L2(2.0)
    penalized = masked.compute_loss(y_pred=np.zeros((4, 12), "float32"))
    assert to_numpy(penalized) == pytest.approx(2 * 16 * 48)


def test_saved_model_comes_back_with_its_encoder(tmp_path):
    arguments = {"target": "downsized", "corruption_rate": 0.25, "seed": 3}
    masked = keras_vit.MaskedPatchPrediction(encoder(classifier="gap"), **arguments)
    masked.save(tmp_path / "masked.keras")
    with zipfile.ZipFile(tmp_path / "masked.keras") as archive:
        assert b"shared_object_id" not in archive.read("config.json")  # an address in memory
    again = keras.saving.load_model(tmp_path / "masked.keras")
    assert (again.arguments, again.encoder.arguments) == (arguments, masked.encoder.arguments)
    np.testing.assert_array_equal(*(to_numpy(each.encoder(IMAGES)) for each in (again, masked)))
    assert_same(again, masked)


def test_the_encoder_alone_is_trained():
    model = encoder(num_classes=7)
    masked = keras_vit.MaskedPatchPrediction(model)
    trained, own = ({id(w) for w in each.trainable_weights} for each in (masked, model))
    assert own - trained == {id(weight) for weight in model.get_layer("head").weights}
    assert len(trained - own) == 3


@pytest.mark.rows(
    ({}, {"target": "color"}, "'color'"),
    ({"patch_size": 2}, {"target": "downsized"}, "Received: 2 pixels"),
    ({}, {"corruption_rate": 0.0}, r"rate=0\.0"),
    ({"resnet": {"num_layers": ()}, "image_size": (16, 22)}, {}, "16 x 16 pixels"),
    ({"in_channels": 4}, {}, "in_channels=4"),
)
def test_mistakes_are_named(overrides, arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.MaskedPatchPrediction(encoder(**overrides), **arguments)
    with pytest.raises(ValueError, match=r"Expected a keras_vit\.VisionTransformer"):
        keras_vit.MaskedPatchPrediction(keras.Sequential([keras.Input((4,))]))
