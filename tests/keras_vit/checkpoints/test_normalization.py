"""Images of every normalization enter as [-1, 1]."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture
def case(cases):
    return cases["deit"]


@pytest.fixture
def folder(case, golden, tmp_path):
    """A folder with a file of a model that was trained on ImageNet's normalization."""
    save_file(golden.checkpoint(case), tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def check(case, golden, build_case, forward):
    """Returns a function that loads in some way and compares the logits with the reference's."""

    def check(load, path, **arguments):
        model = build_case(case)
        load(model, path, **arguments)
        expected = np.array(case["logits"])
        logits = forward(model, golden.images_of(case))
        assert np.abs(logits - expected).max() < 2e-5 * expected.std()

    return check


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"pretrained_cfg": {"mean": MEAN, "std": STD}}),
        ("config.json", {"architecture": "deit", "mean": MEAN, "std": STD}),
        ("preprocessor_config.json", {"image_mean": MEAN, "image_std": STD}),
        (
            "preprocessor_config.json",
            {
                "image_mean": [255 * m for m in MEAN],
                "image_std": [255 * s for s in STD],
                "do_rescale": False,
            },
        ),
        (
            "preprocessor_config.json",
            {"image_mean": MEAN, "image_std": STD, "rescale_factor": 0.00392156862745098},
        ),
    ],
)
@pytest.mark.parametrize("load", [keras_vit.load_checkpoint, load_weights])
def test_what_lies_beside_the_file(name, content, load, folder, check):
    (folder / name).write_text(json.dumps(content))
    check(load, folder)


def test_a_single_file_has_its_config_beside(folder, check):
    (folder / "config.json").write_text(json.dumps({"pretrained_cfg": {"mean": MEAN, "std": STD}}))
    check(keras_vit.load_checkpoint, folder / "model.safetensors")


def test_arguments_come_first(folder, check):
    (folder / "config.json").write_text(json.dumps({"mean": [0, 0, 0], "std": [1, 1, 1]}))
    check(keras_vit.load_checkpoint, folder, mean=MEAN, std=STD)


def test_without_normalization_is_refused(folder, case, build_case, to_numpy):
    model = build_case(case)
    before = [to_numpy(v).tobytes() for v in model.variables]
    for load in (keras_vit.load_checkpoint, load_weights):
        with pytest.raises(CheckpointError) as error:
            load(model, folder)
        for way in ("config.json", "preprocessor_config.json", "mean=(r, g, b)", "pretrained_cfg"):
            assert way in str(error.value)
    assert [to_numpy(v).tobytes() for v in model.variables] == before


def test_images_in_0_to_1(folder, case, golden, build_case, to_numpy):
    """`do_normalize: false`: K (x + 1) / 2 + b."""
    (folder / "preprocessor_config.json").write_text(json.dumps({"do_normalize": False}))
    model, arrays = build_case(case), golden.checkpoint(case)
    keras_vit.load_checkpoint(model, folder)
    kernel = arrays["patch_embed.proj.weight"]
    embedding = model.get_layer("embedding").projection
    np.testing.assert_array_equal(to_numpy(embedding.kernel), kernel.transpose(2, 3, 1, 0) / 2)
    expected = arrays["patch_embed.proj.bias"] + kernel.sum((1, 2, 3)) / 2
    np.testing.assert_allclose(to_numpy(embedding.bias), expected, atol=1e-5)


def test_one_half_changes_no_bit(folder, case, golden, build_case, to_numpy):
    model, arrays = build_case(case), golden.checkpoint(case)
    keras_vit.load_checkpoint(model, folder, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    embedding = model.get_layer("embedding").projection
    np.testing.assert_array_equal(to_numpy(embedding.bias), arrays["patch_embed.proj.bias"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"mean": MEAN},
        {"mean": MEAN, "std": [0.1, 0.1]},
        {"mean": MEAN, "std": [0.1, 0.1, 0.0]},
        {"mean": [np.nan, 0, 0], "std": STD},
        {"mean": "rgb", "std": STD},
    ],
)
def test_impossible_normalization(arguments, folder, case, build_case):
    with pytest.raises(CheckpointError, match="a mean and a positive std"):
        keras_vit.load_checkpoint(build_case(case), folder, **arguments)


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"image_mean": 1}', '{"do_normalize": false, "rescale_factor": "a"}']
)
def test_damaged_preprocessor(text, folder, case, build_case):
    (folder / "preprocessor_config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json"):
        keras_vit.load_checkpoint(build_case(case), folder)


def test_files_for_minus_one_to_one_take_no_normalization(make_vit, tmp_path):
    keras_vit.save_checkpoint(make_vit(), tmp_path / "a.npz")
    with pytest.raises(CheckpointError, match="whose models take"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "a.npz", mean=MEAN, std=STD)
