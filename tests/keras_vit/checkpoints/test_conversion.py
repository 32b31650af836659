"""Positions, patch kernels and normalizations; many logits are among the golden cases."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights
from keras_vit.checkpoints import conversion as resized
from keras_vit.checkpoints.torch_layouts import HUGGING_FACE_DINOV2, HUGGING_FACE_VIT
from keras_vit.interpolation import half_pixel_weights
from tests.keras_vit import small
from tests.keras_vit.small import assert_logits, assert_same, edited, forward, make_vit, to_numpy

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PREPROCESSOR = "preprocessor_config.json"
HUGGING_FACE = {"image_mean": MEAN, "image_std": STD}
OF_BYTES = {name: [255 * value for value in HUGGING_FACE[name]] for name in HUGGING_FACE}


@pytest.mark.rows(
    ([[1, 2], [3, 5]], (3, 3), [[1, 1.5, 2], [2, 2.75, 3.5], [3, 4, 5]]),
    # Shrinking samples without averaging.
    (np.arange(16).reshape(4, 4), (2, 2), [[0, 3], [12, 15]]),
    ([[1, 2], [3, 5]], (1, 2), [[1, 2]]),
    ([[7]], (2, 3), np.full((2, 3), 7)),
)
def test_small_grids(grid, size, expected):
    found = resized.resize_grid(np.asarray(grid, "float32")[..., None], *size)
    np.testing.assert_array_equal(found[..., 0], expected)


@pytest.mark.parametrize("source", [7, 12, 14])
def test_scipys_zoom_where_that_is_right(source):
    from scipy.ndimage import zoom

    grid = np.random.default_rng(0).standard_normal((source, source, 3), "float32")
    for target in (2, 7, 10, 24, 37):
        expected = zoom(grid, (target / source, target / source, 1), order=1)
        np.testing.assert_allclose(resized.resize_grid(grid, target, target), expected, atol=5e-7)


@pytest.mark.parametrize("interpolation", ["corners", "centers", "antialiased"])
def test_same_size_is_the_same_bits_and_constants_stay(interpolation):
    grid = np.random.default_rng(0).standard_normal((7, 9, 4)).astype("float32")
    assert resized.resize_grid(grid, 7, 9, interpolation=interpolation).tobytes() == grid.tobytes()
    for size in ((5, 5), (15, 15), (4, 9)):
        constant = resized.resize_grid(np.ones_like(grid), *size, interpolation=interpolation)
        np.testing.assert_allclose(constant, 1, rtol=1e-6)


@pytest.mark.rows(
    *((197, token, (24, 24), None, None, (14, 14, 1)) for token in (False, True)),
    *((196, token, (24, 24), None, None, (14, 14, 0)) for token in (False, True)),
    # 18 x 32 has as many cells as 24 x 24.
    (577, True, (18, 32), None, None, (18, 32, 1)),
    (577, True, (18, 32), (24, 24), None, (24, 24, 1)),
    # And 14 x 14 without a class token is 13 x 15 with one.
    (196, True, (13, 15), None, None, (13, 15, 1)),
    (196, True, (13, 15), (14, 14), None, (14, 14, 0)),
    # Without a class token, a square comes before the model's grid with an entry for one.
    (196, False, (13, 15), None, None, (14, 14, 0)),
    (10, True, (2, 5), None, None, (2, 5, 0)),
    (6, False, (2, 3), None, None, (2, 3, 0)),
    (13, True, (5, 5), (3, 4), None, (3, 4, 1)),
    (2, True, (5, 5), None, None, (1, 1, 1)),
    # 16 entries of a format that always has a class token are no grid of 4 x 4.
    *((16, token, (5, 3), None, True, (5, 3, 1)) for token in (False, True)),
    (17, True, (3, 3), None, True, (4, 4, 1)),
    (16, True, (3, 5), None, False, (4, 4, 0)),
)
def test_grid_of_a_table(entries, class_token, grid_size, stated, class_entry, expected):
    assert resized.grid_of_table(entries, class_token, grid_size, stated, class_entry) == expected


@pytest.mark.rows(
    *((entries, None, None, "position_grid") for entries in (0, 13, 195)),
    (197, (3, 3), None, "3 rows and 3 columns"),
    (16, None, HUGGING_FACE_VIT.class_entry, "4 columns, with a class token"),
    (16, None, HUGGING_FACE_DINOV2.class_entry, "4 columns, with a class token"),
)
def test_a_table_without_grid(entries, stated, class_entry, message):
    with pytest.raises(CheckpointError, match=message):
        resized.grid_of_table(entries, True, (4, 4), stated, class_entry)


def test_the_class_tokens_entry_half_pixel_weights_and_grown_patches():
    table = np.random.default_rng(0).standard_normal((1, 5, 2), "float32")
    patches = resized.resize_table(table, False, (3, 4))
    assert patches.shape == (1, 12, 2)
    for given, token in ((table, table[:, :1]), (table[:, 1:], np.zeros((1, 1, 2)))):
        expected = np.concatenate([token, patches], 1)
        np.testing.assert_array_equal(resized.resize_table(given, True, (3, 4)), expected)
    """Of two pixels to four: quarters between, and the edges repeated."""
    expected = [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]]
    np.testing.assert_allclose(half_pixel_weights(2, 4), expected)
    np.testing.assert_allclose(half_pixel_weights(4, 2, antialias=True).sum(1), 1)
    assert (half_pixel_weights(4, 2, antialias=True) > 0).sum() > 4
    """Section 3.4: <B x, w'> = <x, w> for every patch x if B enlarges."""
    by_row, by_column = half_pixel_weights(8, 13), half_pixel_weights(6, 9)
    rng = np.random.default_rng(1)
    patch, kernel = rng.standard_normal((8, 6, 3)), rng.standard_normal((8, 6, 3, 5))
    grown = np.einsum("rs,ct,sti->rci", by_row, by_column, patch)
    found = np.einsum("rci,rcio->o", grown, resized.resize_kernel(kernel, 13, 9))
    np.testing.assert_allclose(found, np.einsum("sti,stio->o", patch, kernel))


def test_another_patch_size_must_be_asked_for(saved):
    model = make_vit(patch_size=8, representation_size=12)
    with pytest.raises(CheckpointError, match="flexible=True") as error:
        keras_vit.load_checkpoint(model, saved)
    assert error.value.mis_shaped == ("embedding/kernel",)
    keras_vit.load_checkpoint(model, saved, flexible=True)


def test_a_pytorch_file_is_resized_as_an_npz(cases, build_case, write_case, tmp_path):
    """As FlexiViT of timm: positions without class token, images in [-1, 1]."""
    case, half = cases["deit3"], (0.5, 0.5, 0.5)
    path = write_case(case, tmp_path)
    model = build_case(case)
    keras_vit.load_checkpoint(model, path, mean=half, std=half)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    small, other = build_case(case, patch_size=8), build_case(case, patch_size=8)
    keras_vit.load_checkpoint(small, path, mean=half, std=half, flexible=True)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz", flexible=True)
    for mine, theirs in zip(small.variables, other.variables, strict=True):
        np.testing.assert_allclose(to_numpy(mine), to_numpy(theirs), atol=1e-6)


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
