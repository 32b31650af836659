"""Files of color images in models of other channels."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError
from keras_vit.checkpoints.patch_kernel import convert_channels

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.fixture
def load(cases, golden, build_case, write_case, tmp_path):
    """Returns a function of channels to (the model, the file's arrays)."""

    def load(name, channels):
        case = cases[name]
        model = build_case(case, in_channels=channels)
        normalization = {"mean": MEAN, "std": STD} if name == "deit" else {}
        keras_vit.load_checkpoint(model, write_case(case, tmp_path), **normalization)
        return model, golden.checkpoint(case)

    return load


@pytest.mark.parametrize("name", ["deit", "vit"])
def test_gray_images_have_the_logits_of_their_colors(name, cases, golden, load, forward):
    images = golden.images_of(cases[name])[..., :1]
    gray, _ = load(name, 1)
    color, _ = load(name, 3)
    expected = forward(color, np.repeat(images, 3, axis=-1))
    assert np.abs(forward(gray, images) - expected).max() < 2e-5 * expected.std()


@pytest.mark.parametrize("channels", [2, 4, 6])
def test_more_channels_are_normalized_as_the_colors_that_they_repeat(channels, load, to_numpy):
    """The sum over channels i of 3 / n K[i mod 3] ((x + 1) / 2 - mean) / std."""
    model, arrays = load("deit", channels)
    projection = model.get_layer("embedding").projection
    kernel = arrays["patch_embed.proj.weight"].transpose(2, 3, 1, 0).astype("float64")
    x = np.random.default_rng(0).uniform(-1, 1, (16, 16, channels))
    expected = arrays["patch_embed.proj.bias"].astype("float64")
    for i in range(channels):
        normalized = ((x[..., i] + 1) / 2 - MEAN[i % 3]) / STD[i % 3]
        expected = expected + 3 / channels * np.einsum("rc,rco->o", normalized, kernel[:, :, i % 3])
    result = np.einsum("rci,rcio->o", x, to_numpy(projection.kernel)) + to_numpy(projection.bias)
    np.testing.assert_allclose(result, expected, atol=1e-4 * expected.std())


def test_six_channels_of_two_equal_images(cases, golden, load, forward):
    images = golden.images_of(cases["deit"])
    color, _ = load("deit", 3)
    twice, _ = load("deit", 6)
    expected = forward(color, images)
    logits = forward(twice, np.concatenate([images, images], axis=-1))
    assert np.abs(logits - expected).max() < 2e-5 * expected.std()


def test_convert_channels():
    kernel = np.arange(3.0).reshape(1, 1, 3, 1)
    assert convert_channels(kernel, 1).ravel() == [3]
    np.testing.assert_array_equal(
        convert_channels(kernel, 4).ravel(), np.array([0, 1, 2, 0]) * 3 / 4
    )


def test_what_is_not_color_is_refused(make_vit, tmp_path):
    keras_vit.save_checkpoint(make_vit(in_channels=4), tmp_path / "a.npz")
    for channels in (1, 3):
        with pytest.raises(CheckpointError) as error:
            keras_vit.load_checkpoint(make_vit(in_channels=channels), tmp_path / "a.npz")
        assert error.value.mis_shaped == ("embedding/kernel",)


def test_a_normalization_is_of_three_colors(cases, golden, build_case, tmp_path):
    arrays = golden.checkpoint(cases["deit"])
    arrays["patch_embed.proj.weight"] = arrays["patch_embed.proj.weight"][:, :1].copy()
    save_file(arrays, tmp_path / "gray.safetensors")
    model = build_case(cases["deit"], in_channels=1)
    with pytest.raises(CheckpointError, match="not of color images"):
        keras_vit.load_checkpoint(model, tmp_path / "gray.safetensors", mean=MEAN, std=STD)


def test_standardized_kernels_are_refused(make_vit, make_resnet, tmp_path):
    """Their scale is no part of the function: sums and multiples mean nothing there."""
    for make in (
        lambda **a: make_vit(resnet={"num_layers": (1,)}, image_size=32, **a),
        make_resnet,
    ):
        keras_vit.save_checkpoint(make(), tmp_path / "a.npz")
        with pytest.raises(CheckpointError) as error:
            keras_vit.load_checkpoint(make(in_channels=1), tmp_path / "a.npz")
        assert len(error.value.mis_shaped) == 1


def test_patches_of_a_variable_aspect_are_refused(make_vit, tmp_path):
    """NaFlex embeds flattened patches by a matrix."""
    keras_vit.save_checkpoint(make_vit(), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file.items())
    arrays["embedding/kernel"] = arrays["embedding/kernel"].reshape(-1, 16)
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(CheckpointError) as error:
        keras_vit.load_checkpoint(make_vit(), tmp_path / "b.npz")
    assert error.value.mis_shaped == ("embedding/kernel",)
