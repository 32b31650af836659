"""What strict loading accepts, refuses and leaves alone."""

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_weights


@pytest.fixture
def saved(make_vit, tmp_path):
    """The path of a small model's checkpoint: 4 x 4 patches, 5 classes, hidden layer of 12."""
    keras_vit.save_checkpoint(make_vit(representation_size=12), tmp_path / "model.npz")
    return tmp_path / "model.npz"


@pytest.fixture
def edit(saved):
    """Returns a function that writes the checkpoint with other arrays (None removes one)."""

    def edit(**changes):
        with np.load(saved) as file:
            arrays = {**dict(file.items()), **changes}
        np.savez(saved, **{n: a for n, a in arrays.items() if a is not None})
        return saved

    return edit


@pytest.fixture
def refuse(to_numpy):
    """Returns a function that loads and returns the error, after a check of the model."""

    def refuse(model, path, **arguments):
        before = [to_numpy(v).tobytes() for v in model.variables]
        with pytest.raises(CheckpointError) as error:
            keras_vit.load_checkpoint(model, path, **arguments)
        assert [to_numpy(v).tobytes() for v in model.variables] == before
        return error.value

    return refuse


def test_missing_left_over_and_mis_shaped_arrays_are_listed(edit, make_vit, refuse):
    path = edit(
        **{
            "Transformer/encoder_norm/scale": None,
            "Transformer/encoder_norm/shift": np.zeros(16, "float32"),
            "embedding/bias": np.zeros(17, "float32"),
        }
    )
    error = refuse(make_vit(representation_size=12), path)
    assert error.missing == ("Transformer/encoder_norm/scale",)
    assert error.left_over == ("Transformer/encoder_norm/shift",)
    assert error.mis_shaped == ("embedding/bias",)
    assert "Transformer/encoder_norm/shift (16,)" in str(error)
    assert "embedding/bias is (17,), the model's is (16,)" in str(error)


def test_another_head_must_be_named(saved, make_vit, refuse, to_numpy):
    model = make_vit(seed=1, representation_size=12, num_classes=3)
    error = refuse(model, saved)
    assert error.mis_shaped == ("head/kernel", "head/bias")
    assert 'pass skip=("head",)' in str(error)
    before = to_numpy(model.get_layer("head").kernel)
    keras_vit.load_checkpoint(model, saved, skip=("head",))
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), before)
    with np.load(saved) as file:
        np.testing.assert_array_equal(
            to_numpy(model.get_layer("pre_logits").kernel), file["pre_logits/kernel"]
        )


def test_a_skipped_head_stays_even_if_it_fits(saved, make_vit, to_numpy):
    model = make_vit(seed=1, representation_size=12)
    before = to_numpy(model.get_layer("head").bias)
    keras_vit.load_checkpoint(model, saved, skip=("head",))
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").bias), before)


def test_hidden_layer_must_be_named(saved, make_vit, refuse):
    model = make_vit(seed=1)
    error = refuse(model, saved, skip=("head",))
    assert sorted(error.left_over) == ["pre_logits/bias", "pre_logits/kernel"]
    assert 'pass skip=("pre_logits",)' in str(error)
    keras_vit.load_checkpoint(model, saved, skip=("head", "pre_logits"))


def test_missing_head_must_be_named(edit, make_vit, refuse):
    path = edit(**{"head/kernel": None, "head/bias": None})
    error = refuse(make_vit(representation_size=12), path)
    assert sorted(error.missing) == ["head/bias", "head/kernel"]
    keras_vit.load_checkpoint(make_vit(representation_size=12), path, skip=("head",))


def test_single_arrays_can_be_named(edit, make_vit):
    path = edit(**{"embedding/bias": None})
    keras_vit.load_checkpoint(make_vit(representation_size=12), path, skip=("embedding/bias",))


def test_names_are_whole(saved, make_vit, refuse):
    """ "head" is not "headless": a prefix of a name is not the name."""
    model = make_vit(representation_size=12, num_classes=3)
    assert "Received: 'hea', 'head/k'" in str(refuse(model, saved, skip=("hea", "head/k")))


def test_misspelled_skip_is_refused(saved, make_vit, refuse):
    model = make_vit(representation_size=12)
    error = refuse(model, saved, skip=("Head", "embedding/bias"))
    assert "that the model or" in str(error)
    assert "Received: 'Head'. " in str(error)


@pytest.mark.parametrize("part", ["head", "pre_logits"])
def test_what_follows_the_encoder_may_always_be_skipped(part, make_vit, tmp_path):
    model = make_vit(num_classes=None)
    keras_vit.save_checkpoint(model, tmp_path / "model.npz")
    keras_vit.load_checkpoint(model, tmp_path / "model.npz", skip=(part,))


def test_skip_is_not_a_string(saved, make_vit):
    with pytest.raises(ValueError, match="must be a sequence of names"):
        keras_vit.load_checkpoint(make_vit(representation_size=12), saved, skip="head")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite(value, edit, make_vit, refuse):
    bad = np.zeros((1, 1, 16), "float32")
    bad[0, 0, 7] = value
    error = refuse(make_vit(representation_size=12), edit(cls=bad))
    assert "NaN or infinite values in: cls" in str(error)


def test_a_skipped_array_may_hold_anything(edit, make_vit):
    path = edit(**{"head/bias": np.full(5, np.nan, "float32")})
    keras_vit.load_checkpoint(make_vit(representation_size=12), path, skip=("head",))


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64", "S4"])
def test_arrays_must_be_floating_point(dtype, edit, make_vit, refuse):
    error = refuse(make_vit(representation_size=12), edit(cls=np.zeros((1, 1, 16), dtype)))
    assert "cls does not hold floating-point numbers" in str(error)


@pytest.mark.parametrize("size", [(16, 16), (32, 16), (28, 40), (4, 4)])
def test_position_embeddings_are_resized(size, saved, make_vit, random_images, forward):
    model = make_vit(seed=1, representation_size=12, image_size=size)
    keras_vit.load_checkpoint(model, saved)
    original = make_vit(representation_size=12)
    images = random_images(2, *size)
    expected = forward(original.any_resolution(), images)
    np.testing.assert_allclose(forward(model, images), expected, atol=5e-6)


def test_a_square_table_is_not_taken_for_a_rectangle_of_its_size(saved, make_vit, to_numpy):
    """2 x 8 patches are 4 x 4 in number."""
    model = make_vit(seed=1, representation_size=12, image_size=(8, 32))
    keras_vit.load_checkpoint(model, saved)
    table = to_numpy(model.get_layer("position_embedding").embedding)
    with np.load(saved) as file:
        grid = file["Transformer/posembed_input/pos_embedding"][0, 1:].reshape(4, 4, 16)
    np.testing.assert_array_equal(table[0, 1], grid[0, 0])
    np.testing.assert_array_equal(table[0, 8], grid[0, 3])
    np.testing.assert_array_equal(table[0, 9], grid[3, 0])


def test_a_rectangle_is_read_back_as_one(make_vit, to_numpy, tmp_path):
    model = make_vit(image_size=(8, 32))
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    for size in ((8, 32), (32, 8)):
        other = make_vit(seed=1, image_size=size)
        keras_vit.load_checkpoint(other, tmp_path / "a.npz")
        tables = [to_numpy(m.get_layer("position_embedding").embedding) for m in (model, other)]
        assert np.array_equal(*tables) == (size == (8, 32))


def test_a_foreign_rectangle_must_be_stated(make_vit, refuse, to_numpy, tmp_path):
    model = make_vit(image_size=(8, 12))
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        np.savez(tmp_path / "b.npz", **dict(file.items()))
    other = make_vit(seed=1)
    assert "position_grid=(rows, columns)" in str(refuse(other, tmp_path / "b.npz"))
    keras_vit.load_checkpoint(other, tmp_path / "b.npz", position_grid=(2, 3))
    table = to_numpy(other.get_layer("position_embedding").embedding)[0, 1:].reshape(4, 4, 16)
    source = to_numpy(model.get_layer("position_embedding").embedding)[0, 1:].reshape(2, 3, 16)
    np.testing.assert_array_equal(table[::3, ::3], source[:, ::2])


def test_table_of_another_width_is_mis_shaped(saved, make_vit, refuse):
    error = refuse(make_vit(hidden_size=8, representation_size=12), saved)
    assert "Transformer/posembed_input/pos_embedding" in error.mis_shaped
    assert "Build the model with the configuration" in str(error)


def test_token_table_for_pooled_tokens(saved, make_vit, to_numpy):
    model = make_vit(classifier="gap", representation_size=12)
    keras_vit.load_checkpoint(model, saved, skip=("cls",))
    with np.load(saved) as file:
        expected = file["Transformer/posembed_input/pos_embedding"][:, 1:]
    table = to_numpy(model.get_layer("position_embedding").embedding)
    np.testing.assert_array_equal(table, expected)


def test_unknown_arrays(make_vit, tmp_path, refuse):
    np.savez(tmp_path / "a.npz", weights=np.zeros(3, "float32"))
    error = refuse(make_vit(), tmp_path / "a.npz")
    assert "in no known format" in str(error)
    assert "weights" in str(error)


def test_no_such_file(make_vit, tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "none.npz")


def test_other_models_are_refused(saved):
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(TypeError, match="Received: Sequential"):
        keras_vit.load_checkpoint(model, saved)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({}, ["head"]),
        ({"num_classes": 3}, ["head"]),
        ({"representation_size": 12}, []),
        ({"representation_size": 12, "num_classes": 3}, ["head"]),
        ({"num_classes": None}, []),
    ],
)
def test_transfer(arguments, kept, saved, make_vit, to_numpy):
    """`load_weights` keeps a head that cannot be filled and drops the hidden layer."""
    model = make_vit(seed=1, **arguments)
    before = {w.path: to_numpy(w) for w in model.weights}
    load_weights(model, saved)
    same = {
        path
        for path, value in before.items()
        if np.array_equal(value, to_numpy(next(w for w in model.weights if w.path == path)))
    }
    assert {path.split("/")[0] for path in same} == set(kept)


def test_transfer_is_strict_about_the_encoder(saved, make_vit):
    with pytest.raises(CheckpointError) as error:
        load_weights(make_vit(num_layers=3), saved)
    assert all("encoderblock_2" in name for name in error.value.missing)
    with pytest.raises(CheckpointError) as error:
        load_weights(make_vit(representation_size=8), saved)
    assert error.value.mis_shaped == ("pre_logits/kernel", "pre_logits/bias")


def test_create_model_with_weights(make_vit, forward, random_images, tmp_path):
    small = {"hidden_size": 16, "mlp_dim": 32, "num_heads": 2, "num_layers": 2}
    keras_vit.save_checkpoint(make_vit(representation_size=12), tmp_path / "a.npz")
    model = keras_vit.create_model(
        "ViT-B/4", num_classes=None, image_size=16, weights=tmp_path / "a.npz", **small
    )
    expected = make_vit(num_classes=None)
    images = random_images()
    np.testing.assert_allclose(forward(model, images), forward(expected, images), atol=1e-5)
