import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights
from tests.keras_vit import small
from tests.keras_vit.small import assert_logits, assert_same, edited, forward, make_vit, to_numpy

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PREPROCESSOR = "preprocessor_config.json"
HUGGING_FACE = {"image_mean": MEAN, "image_std": STD}
OF_BYTES = {name: [255 * value for value in HUGGING_FACE[name]] for name in HUGGING_FACE}


@pytest.fixture
def case(cases):
    return cases["deit"]


@pytest.fixture
def folder(case, golden, tmp_path):
    save_file(golden.checkpoint(case), tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.rows(
    ("config.json", {"pretrained_cfg": {"mean": MEAN, "std": STD}}),
    ("config.json", {"architecture": "deit", "mean": MEAN, "std": STD}),
    (PREPROCESSOR, HUGGING_FACE),
    (PREPROCESSOR, OF_BYTES | {"do_rescale": False}),
    (PREPROCESSOR, HUGGING_FACE | {"rescale_factor": 0.00392156862745098}),
)
def test_normalization_beside_the_file(name, content, folder, case, build_case):
    (folder / name).write_text(json.dumps(content))
    for load in (keras_vit.load_checkpoint, load_weights):
        for path in (folder, folder / "model.safetensors"):
            model = build_case(case)
            load(model, path)
    assert_logits(model, case)


@pytest.mark.rows(
    (PREPROCESSOR, {"image_mean": 0.25, "image_std": 0.75}, {}),
    (PREPROCESSOR, {"image_mean": [0.25] * 3, "image_std": 0.75}, {}),
    ("config.json", {"pretrained_cfg": {"mean": 0.25, "std": [0.75] * 3}}, {}),
    ("config.json", {}, {"mean": 0.25, "std": 0.75}),
)
def test_one_number_is_that_of_all_colors(name, content, arguments, folder, case, build_case):
    one, three = build_case(case), build_case(case)
    keras_vit.load_checkpoint(three, folder, mean=(0.25,) * 3, std=(0.75,) * 3)
    (folder / name).write_text(json.dumps(content))
    keras_vit.load_checkpoint(one, folder, **arguments)
    assert_same(one, three)
    # K (rgb - 1/4) / (3/4) + b is 2/3 K x + b + 1/3 K.
    kernel = load_file(folder / "model.safetensors")["patch_embed.proj.weight"]
    folded = to_numpy(one.get_layer("embedding").projection.kernel).reshape(16, 16, 3, -1)
    np.testing.assert_allclose(folded, kernel.transpose(2, 3, 1, 0) * 2 / 3, rtol=1e-6)


def test_without_normalization_is_refused(folder, case, build_case):
    model = build_case(case)
    before = model.get_weights()
    for load in (keras_vit.load_checkpoint, load_weights):
        with pytest.raises(CheckpointError) as error:
            load(model, folder)
        for way in ("config.json", PREPROCESSOR, "mean=(r, g, b)", "pretrained_cfg"):
            assert way in str(error.value)
    assert all(map(np.array_equal, model.get_weights(), before))


@pytest.mark.rows(
    ("{}", {"mean": MEAN}, "a mean and a positive std"),
    ("{}", {"mean": MEAN, "std": [0.1, 0.1]}, "a mean and a positive std"),
    ("{}", {"mean": MEAN, "std": [0.1, 0.1, 0.0]}, "a mean and a positive std"),
    ("{}", {"mean": [np.nan, 0, 0], "std": STD}, "a mean and a positive std"),
    ("{}", {"mean": "rgb", "std": STD}, "a mean and a positive std"),
    ("{}", {"std": 0.5}, "a mean and a positive std"),
    ("{}", {"mean": 127.5, "std": 127.5}, "Divide values of"),
    ("{}", {"mean": (123, 117, 104), "std": (58, 57, 57)}, "Divide values of"),
    *((text, {}, r"preprocessor_config\.json") for text in ("{", "{}", '{"image_mean": 1}')),
    ('{"do_normalize": false, "rescale_factor": "a"}', {}, "a positive `rescale_factor`"),
)
def test_impossible_normalization(text, arguments, message, folder, case, build_case):
    (folder / PREPROCESSOR).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        keras_vit.load_checkpoint(build_case(case), folder, **arguments)


@pytest.mark.parametrize("name", ["deit", "vit"])
def test_gray_images_equal_color(name, cases, golden, build_case, load_case, write_case, tmp_path):
    case = cases[name]
    gray = golden.images_of(case)[..., :1]
    models = [build_case(case, in_channels=channels) for channels in (1, 3)]
    for model in models:
        load_case(model, case, write_case(case, tmp_path))
    logits, expected = map(forward, models, (gray, gray.repeat(3, axis=-1)))
    assert np.abs(logits - expected).max() < 2e-5 * expected.std()


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("channels", [2, 3, 4, 6])
def test_channels_are_normalized_as_colors(channels, normalize, folder, case, golden, build_case):
    """The sum over channels i of 3 / n K[i mod 3] ((x + 1) / 2 - mean) / std."""
    (folder / PREPROCESSOR).write_text(json.dumps(HUGGING_FACE | {"do_normalize": normalize}))
    mean, std = (MEAN, STD) if normalize else ([0] * 3, [1] * 3)
    arrays, model = golden.checkpoint(case), build_case(case, in_channels=channels)
    keras_vit.load_checkpoint(model, folder)
    projection = model.get_layer("embedding").projection
    kernel = arrays["patch_embed.proj.weight"].transpose(2, 3, 1, 0).astype("float64")
    x = np.random.default_rng(0).uniform(-1, 1, (16, 16, channels))
    expected = arrays["patch_embed.proj.bias"].astype("float64")
    for i in range(channels):
        normalized = ((x[..., i] + 1) / 2 - mean[i % 3]) / std[i % 3]
        expected = expected + 3 / channels * np.einsum("rc,rco->o", normalized, kernel[:, :, i % 3])
    result = np.einsum("rci,rcio->o", x, to_numpy(projection.kernel)) + to_numpy(projection.bias)
    np.testing.assert_allclose(result, expected, atol=1e-4 * expected.std())
    # What the caller says comes first.
    keras_vit.load_checkpoint(model, folder, mean=(0.5,) * 3, std=(0.5,) * 3)
    np.testing.assert_array_equal(to_numpy(projection.bias), arrays["patch_embed.proj.bias"])


def test_a_normalization_has_three_colors(saved, case, golden, build_case, tmp_path):
    arrays = golden.checkpoint(case)
    arrays["patch_embed.proj.weight"] = arrays["patch_embed.proj.weight"][:, :1].copy()
    save_file(arrays, tmp_path / "gray.safetensors")
    for model, path, message in (
        (build_case(case, in_channels=1), tmp_path / "gray.safetensors", "not of color images"),
        (make_vit(), saved, "whose models take"),
    ):
        with pytest.raises(CheckpointError, match=message):
            keras_vit.load_checkpoint(model, path, mean=MEAN, std=STD)


def test_kernels_that_cannot_be_converted_are_refused(saved):
    """The scale of standardized kernels is no part of the function: sums mean nothing there."""

    def refuse(model, path):
        with pytest.raises(CheckpointError) as error:
            keras_vit.load_checkpoint(model, path)
        assert len(error.value.mis_shaped) == 1

    flat = np.load(saved)["embedding/kernel"].reshape(-1, 16)
    # NaFlex embeds flattened patches by a matrix.
    refuse(make_vit(representation_size=12), edited(saved, **{"embedding/kernel": flat}))
    hybrid = {"resnet": {"num_layers": (1,)}, "image_size": 32}
    for make, arguments in ((make_vit, hybrid), (small.make_resnet, {})):
        keras_vit.save_checkpoint(make(**arguments), saved)
        refuse(make(**arguments, in_channels=1), saved)
    keras_vit.save_checkpoint(make_vit(in_channels=4), saved)
    for channels in (1, 3):
        refuse(make_vit(in_channels=channels), saved)
