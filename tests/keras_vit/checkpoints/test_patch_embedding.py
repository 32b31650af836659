"""Images of every normalization enter as [-1, 1], in any number of channels."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PREPROCESSOR = "preprocessor_config.json"


@pytest.fixture
def case(cases):
    return cases["deit"]


@pytest.fixture
def folder(case, golden, tmp_path):
    """A folder with a file of a model that was trained on ImageNet's normalization."""
    save_file(golden.checkpoint(case), tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"pretrained_cfg": {"mean": MEAN, "std": STD}}),
        ("config.json", {"architecture": "deit", "mean": MEAN, "std": STD}),
        (PREPROCESSOR, {"image_mean": MEAN, "image_std": STD}),
        (
            PREPROCESSOR,
            {
                "image_mean": [255 * m for m in MEAN],
                "image_std": [255 * s for s in STD],
                "do_rescale": False,
            },
        ),
        (
            PREPROCESSOR,
            {"image_mean": MEAN, "image_std": STD, "rescale_factor": 0.00392156862745098},
        ),
    ],
)
def test_normalization_beside_the_file(name, content, folder, case, build_case, assert_logits):
    (folder / name).write_text(json.dumps(content))
    for load in (keras_vit.load_checkpoint, load_weights):
        for path in (folder, folder / "model.safetensors"):
            model = build_case(case)
            load(model, path)
    assert_logits(model, case)


def test_without_normalization_is_refused(folder, case, build_case, to_numpy):
    model = build_case(case)
    before = [to_numpy(v).tobytes() for v in model.variables]
    for load in (keras_vit.load_checkpoint, load_weights):
        with pytest.raises(CheckpointError) as error:
            load(model, folder)
        for way in ("config.json", PREPROCESSOR, "mean=(r, g, b)", "pretrained_cfg"):
            assert way in str(error.value)
    assert [to_numpy(v).tobytes() for v in model.variables] == before


def test_images_in_0_to_1(folder, case, golden, build_case, to_numpy):
    """`do_normalize: false`: K (x + 1) / 2 + b."""
    (folder / PREPROCESSOR).write_text(json.dumps({"do_normalize": False}))
    model, arrays = build_case(case), golden.checkpoint(case)
    keras_vit.load_checkpoint(model, folder)
    kernel = arrays["patch_embed.proj.weight"]
    embedding = model.get_layer("embedding").projection
    np.testing.assert_array_equal(to_numpy(embedding.kernel), kernel.transpose(2, 3, 1, 0) / 2)
    expected = arrays["patch_embed.proj.bias"] + kernel.sum((1, 2, 3)) / 2
    np.testing.assert_allclose(to_numpy(embedding.bias), expected, atol=1e-5)
    keras_vit.load_checkpoint(model, folder, mean=(0.5,) * 3, std=(0.5,) * 3)
    np.testing.assert_array_equal(to_numpy(embedding.bias), arrays["patch_embed.proj.bias"])


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        *(
            ("{}", arguments, "a mean and a positive std")
            for arguments in (
                {"mean": MEAN},
                {"mean": MEAN, "std": [0.1, 0.1]},
                {"mean": MEAN, "std": [0.1, 0.1, 0.0]},
                {"mean": [np.nan, 0, 0], "std": STD},
                {"mean": "rgb", "std": STD},
            )
        ),
        *((text, {}, r"preprocessor_config\.json") for text in ("{", "{}", '{"image_mean": 1}')),
        ('{"do_normalize": false, "rescale_factor": "a"}', {}, "a positive `rescale_factor`"),
    ],
)
def test_impossible_normalization(text, arguments, message, folder, case, build_case):
    (folder / PREPROCESSOR).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        keras_vit.load_checkpoint(build_case(case), folder, **arguments)


def test_files_for_minus_one_to_one_take_no_normalization(saved, make_vit):
    with pytest.raises(CheckpointError, match="whose models take"):
        keras_vit.load_checkpoint(make_vit(), saved, mean=MEAN, std=STD)


@pytest.fixture
def load(cases, build_case, load_case, write_case, tmp_path):
    """Returns a function of a case and channels to the model."""

    def load(name, channels):
        model = build_case(cases[name], in_channels=channels)
        load_case(model, cases[name], write_case(cases[name], tmp_path))
        return model

    return load


@pytest.mark.parametrize("name", ["deit", "vit"])
def test_gray_images_have_the_logits_of_the_same_in_color(name, cases, golden, load, forward):
    images = golden.images_of(cases[name])[..., :1]
    expected = forward(load(name, 3), images.repeat(3, axis=-1))
    logits = forward(load(name, 1), images)
    assert np.abs(logits - expected).max() < 2e-5 * expected.std()


@pytest.mark.parametrize("channels", [2, 4, 6])
def test_more_channels_are_normalized_as_the_colors_that_they_repeat(
    channels, case, golden, load, to_numpy
):
    """The sum over channels i of 3 / n K[i mod 3] ((x + 1) / 2 - mean) / std."""
    arrays = golden.checkpoint(case)
    projection = load("deit", channels).get_layer("embedding").projection
    kernel = arrays["patch_embed.proj.weight"].transpose(2, 3, 1, 0).astype("float64")
    x = np.random.default_rng(0).uniform(-1, 1, (16, 16, channels))
    expected = arrays["patch_embed.proj.bias"].astype("float64")
    for i in range(channels):
        normalized = ((x[..., i] + 1) / 2 - MEAN[i % 3]) / STD[i % 3]
        expected = expected + 3 / channels * np.einsum("rc,rco->o", normalized, kernel[:, :, i % 3])
    result = np.einsum("rci,rcio->o", x, to_numpy(projection.kernel)) + to_numpy(projection.bias)
    np.testing.assert_allclose(result, expected, atol=1e-4 * expected.std())


def test_a_normalization_is_of_three_colors(case, golden, build_case, tmp_path):
    arrays = golden.checkpoint(case)
    arrays["patch_embed.proj.weight"] = arrays["patch_embed.proj.weight"][:, :1].copy()
    save_file(arrays, tmp_path / "gray.safetensors")
    model = build_case(case, in_channels=1)
    with pytest.raises(CheckpointError, match="not of color images"):
        keras_vit.load_checkpoint(model, tmp_path / "gray.safetensors", mean=MEAN, std=STD)


def test_kernels_that_cannot_be_converted_are_refused(make_vit, make_resnet, edit, saved):
    """The scale of standardized kernels is no part of the function: sums mean nothing there."""

    def refuse(model, path):
        with pytest.raises(CheckpointError) as error:
            keras_vit.load_checkpoint(model, path)
        assert len(error.value.mis_shaped) == 1

    with np.load(saved) as file:
        flat = file["embedding/kernel"].reshape(-1, 16)
    # NaFlex embeds flattened patches by a matrix.
    refuse(make_vit(representation_size=12), edit(**{"embedding/kernel": flat}))
    hybrid = {"resnet": {"num_layers": (1,)}, "image_size": 32}
    for make, arguments in ((make_vit, hybrid), (make_resnet, {})):
        keras_vit.save_checkpoint(make(**arguments), saved)
        refuse(make(**arguments, in_channels=1), saved)
    keras_vit.save_checkpoint(make_vit(in_channels=4), saved)
    for channels in (1, 3):
        refuse(make_vit(in_channels=channels), saved)
