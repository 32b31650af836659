"""Strict loading: what it accepts, refuses, leaves alone, and compares with what a file states."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_into_model, load_weights


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


@pytest.mark.parametrize("num_classes", [3, 5])
def test_a_skipped_head_stays_even_if_it_fits(num_classes, saved, make_vit, refuse, to_numpy):
    model = make_vit(seed=1, representation_size=12, num_classes=num_classes)
    if num_classes == 3:
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


def test_hidden_layer_must_be_named(saved, make_vit, refuse):
    model = make_vit(seed=1)
    error = refuse(model, saved, skip=("head",))
    assert sorted(error.left_over) == ["pre_logits/bias", "pre_logits/kernel"]
    assert 'pass skip=("pre_logits",)' in str(error)
    keras_vit.load_checkpoint(model, saved, skip=("head", "pre_logits"))


@pytest.mark.parametrize(
    ("skip", "unknown"),
    [(("hea", "head/k"), "'hea', 'head/k'"), (("Head", "embedding/bias"), "'Head'")],
)
def test_skip_takes_whole_names_alone(skip, unknown, saved, make_vit, refuse):
    model = make_vit(representation_size=12)
    error = refuse(model, saved, skip=skip)
    assert f"that the model or {saved} has. Received: {unknown}. " in str(error)
    with pytest.raises(ValueError, match="must be a sequence of names"):
        keras_vit.load_checkpoint(model, saved, skip="head")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite_unless_they_are_skipped(value, edit, make_vit, refuse):
    bad = np.zeros((1, 1, 16), "float32")
    bad[0, 0, 7] = value
    model = make_vit(representation_size=12)
    assert "NaN or infinite values in: cls" in str(refuse(model, edit(cls=bad)))
    keras_vit.load_checkpoint(model, edit(cls=bad), skip=("cls",))


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_table_without_a_stated_grid(make_vit, edit, positions, monkeypatch):
    """4 x 4 patches and 2 x 8 are as many: only the file or the caller can tell them apart."""
    model, path = make_vit(seed=1, representation_size=12, image_size=(8, 32)), edit()
    with np.load(path) as file:
        table = file["Transformer/posembed_input/pos_embedding"]
    with pytest.warns(UserWarning, match="2 x 8 is taken; the model has 2 x 8"):
        keras_vit.load_checkpoint(model, path)
    np.testing.assert_array_equal(positions(model), table)
    # Published files have a square grid, and callers know theirs.
    monkeypatch.setattr(load_into_model, "find_checkpoint", lambda name: path)
    for name, grid in (("imagenet21k/ViT-B_16", None), (path, (4, 4))):
        keras_vit.load_checkpoint(model, name, position_grid=grid)
        square, resized = table[0, 1:].reshape(4, 4, 16), positions(model)[0, 1:]
        np.testing.assert_array_equal(resized.reshape(2, 8, 16)[:, [0, -1]], square[::3, [0, -1]])
    with pytest.warns(UserWarning, match="4 x 4 is taken; the model has 7 x 3"):
        keras_vit.load_checkpoint(make_vit(representation_size=12, image_size=(28, 12)), path)
    keras_vit.load_checkpoint(make_vit(representation_size=12, image_size=28), path)


def test_a_rectangle_is_read_back_as_one_and_a_foreign_one_must_be_stated(
    make_vit, refuse, positions, tmp_path
):
    model = make_vit(image_size=(8, 12))
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    for size in ((8, 12), (12, 8)):
        other = make_vit(seed=1, image_size=size)
        keras_vit.load_checkpoint(other, tmp_path / "a.npz")
        assert np.array_equal(positions(model), positions(other)) == (size == (8, 12))
    other = make_vit(seed=1)
    with np.load(tmp_path / "a.npz") as file:
        np.savez(tmp_path / "b.npz", **dict(file.items()))
    assert "position_grid=(rows, columns)" in str(refuse(other, tmp_path / "b.npz"))
    keras_vit.load_checkpoint(other, tmp_path / "b.npz", position_grid=(2, 3))
    table, source = positions(other)[0, 1:], positions(model)[0, 1:].reshape(2, 3, 16)
    np.testing.assert_array_equal(table.reshape(4, 4, 16)[::3, ::3], source[:, ::2])


def test_other_files_and_models_are_refused(saved, make_vit, tmp_path, refuse):
    np.savez(tmp_path / "a.npz", weights=np.zeros(3, "float32"))
    assert "in no known format" in str(refuse(make_vit(), tmp_path / "a.npz"))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "none.npz")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="Received: Sequential"):
        keras_vit.load_checkpoint(model, saved)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({}, {"head"}),
        ({"num_classes": 3}, {"head"}),
        ({"representation_size": 12}, set()),
        ({"representation_size": 12, "num_classes": 3}, {"head"}),
        ({"num_classes": None}, set()),
    ],
)
def test_transfer(arguments, kept, saved, make_vit, to_numpy):
    """`load_weights` keeps a head that cannot be filled and drops the hidden layer."""
    model = make_vit(seed=1, **arguments)
    before = [to_numpy(weight) for weight in model.weights]
    load_weights(model, saved)
    pairs = zip(model.weights, before, strict=True)
    same = {weight.path.split("/")[0] for weight, b in pairs if np.array_equal(b, to_numpy(weight))}
    assert same == kept


def test_transfer_is_strict_about_the_encoder(saved, make_vit):
    with pytest.raises(CheckpointError) as error:
        load_weights(make_vit(num_layers=3), saved)
    assert all("encoderblock_2" in name for name in error.value.missing)
    with pytest.raises(CheckpointError) as error:
        load_weights(make_vit(representation_size=8), saved)
    assert error.value.mis_shaped == ("pre_logits/kernel", "pre_logits/bias")


@pytest.mark.parametrize("file_too", [False, True])
def test_quantized_kernels_are_no_weights(file_too, saved, make_vit, to_numpy, tmp_path):
    model, target = make_vit(), make_vit()
    model.quantize("int8")
    if file_too:
        model.save(tmp_path / "int8.keras")
    else:
        target = model
    before = [to_numpy(v) for v in target.weights]
    for load_file in (keras_vit.load_checkpoint, load_weights):
        with pytest.raises(ValueError, match=r"Expected a model as it was trained\..*int8"):
            load_file(target, tmp_path / "int8.keras" if file_too else saved)
    for value, old in zip(target.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(value), old)


def test_sums_of_lora_are_no_variables(make_vit, refuse, tmp_path):
    keras_vit.save_checkpoint(make_vit(), tmp_path / "m.npz")
    model = make_vit()
    model.blocks[1].mlp.hidden_dense.enable_lora(2)
    assert "Load before `enable_lora`" in str(refuse(model, tmp_path / "m.npz"))


SAVED = {"num_heads": 2, "gelu": "erf", "layer_norm_epsilon": 1e-5}
HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
HUGGING_FACE = {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "num_attention_heads": 3}
CONFIGS = {
    "timm": {"architecture": "deit_tiny_patch16_224"},
    "hugging face": HUGGING_FACE,
    "its tower": {"vision_config": HUGGING_FACE},
}


@pytest.fixture(params=["keras", "name", *CONFIGS])
def load_stated(request, cases, build_case, write_case, make_vit, tmp_path, monkeypatch):
    """Returns a function of a model's arguments, which loads a file that states others or them."""

    def of_keras(**overrides):
        make_vit(**SAVED).save(tmp_path / "model.keras")
        keras_vit.load_checkpoint(make_vit(**SAVED | overrides), tmp_path / "model.keras")

    def of_deit(**overrides):
        path = write_case(cases["deit"], tmp_path)
        model = build_case(cases["deit"], **{"gelu": "erf", "num_heads": 3} | overrides)
        if request.param in CONFIGS:
            (tmp_path / "config.json").write_text(json.dumps(CONFIGS[request.param]))
            keras_vit.load_checkpoint(model, path, **HALF)
        else:
            monkeypatch.setattr(load_into_model, "find_checkpoint", lambda name: path)
            keras_vit.load_checkpoint(model, "timm/deit_tiny_patch16_224.fb_in1k")

    return of_keras if request.param == "keras" else of_deit


@pytest.mark.filterwarnings("error::UserWarning")
def test_another_function_is_told_and_other_heads_are_refused(load_stated):
    load_stated()
    with pytest.warns(UserWarning, match="asks for gelu='erf'"):
        load_stated(gelu="tanh")
    with pytest.warns(UserWarning, match="asks for layer_norm_epsilon=1e-0"):
        load_stated(layer_norm_epsilon=1e-3)
    with pytest.raises(CheckpointError, match="the model has num_heads=4"):
        load_stated(num_heads=4)


@pytest.fixture
def load_beside(cases, build_case, write_case, tmp_path):
    """Returns a function that loads the file of a golden case beside a JSON file of the test."""

    def load(case, config, name="config.json", **overrides):
        path = write_case(cases[case], tmp_path)
        (tmp_path / name).write_text(json.dumps(config))
        half = HALF if name == "config.json" else {}
        keras_vit.load_checkpoint(build_case(cases[case], **overrides), path, **half)

    return load


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("config.json", {"hidden_act": "relu"}, "says 'relu'"),
        ("config.json", {"model_args": {"act_layer": "silu"}}, "says 'silu'"),
        ("config.json", {"model_args": {"num_heads": 1}}, "says num_heads=1"),
        ("preprocessor_config.json", {"do_flip_channel_order": True}, "flips the order"),
    ],
)
def test_what_no_model_here_computes_is_refused(name, config, message, load_beside):
    with pytest.raises(CheckpointError, match=message):
        load_beside("deit", config, name)


@pytest.mark.parametrize("grid", [24, (4.0, 6.0), (-4, -6), (4, 6, 1)])
def test_what_is_no_grid_is_refused(grid, make_vit, tmp_path):
    with pytest.raises(ValueError, match=r"position_grid=\(rows, columns\), integers above 0"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "m.npz", position_grid=grid)


def test_another_pooler_is_refused(load_beside):
    with pytest.raises(CheckpointError, match="pooler_act='relu'"):
        load_beside("deit", {"pooler_act": "relu"}, representation_size=48)


def test_another_pooling_and_another_place_of_positions_are_told(load_beside, make_vit, tmp_path):
    with pytest.warns(UserWarning, match="asks for classifier='gap'"):
        load_beside("deit", {"global_pool": "avg"})
    with pytest.warns(UserWarning, match="asks for classifier='gap of all tokens'"):
        prefix = {"architecture": "x", "model_args": {"pool_include_prefix": True}}
        load_beside("dinov2_registers", prefix | {"global_pool": "avg"})
    make_vit(position_placement="shared").save(tmp_path / "shared.keras")
    with pytest.warns(UserWarning, match="asks for position_placement='shared'"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "shared.keras")
    make_vit(position_embedding="none").save(tmp_path / "none.keras")
    with pytest.warns(UserWarning, match="asks for position_embedding='none'"):
        computed = make_vit(position_embedding="sincos_2d")
        keras_vit.load_checkpoint(computed, tmp_path / "none.keras")
    without = {"architecture": "deit_tiny_patch16_224", "model_args": {"pos_embed": "none"}}
    assert load_into_model._of_config(without)["position_embedding"] == "none"


def test_the_head_of_a_keras_file_brings_its_classes(make_vit, tmp_path):
    file = make_vit(num_classes=2)
    file.class_names, file.activation = ["cat", "dog"], "sigmoid"
    file.save(tmp_path / "m.keras")
    model = make_vit(num_classes=2)
    keras_vit.load_checkpoint(model, tmp_path / "m.keras")
    assert (model.class_names, model.activation) == (("cat", "dog"), "sigmoid")
    model.class_names = ["dog", "cat"]
    keras_vit.load_checkpoint(model, tmp_path / "m.keras", skip=("head",))
    assert model.class_names == ("dog", "cat")
    with pytest.warns(UserWarning, match="stands for cat, dog.* They were dog, cat"):
        keras_vit.load_checkpoint(model, tmp_path / "m.keras")
    assert model.class_names == ("cat", "dog")
    around = keras.Sequential([keras.Input(model.input_shape[1:]), model])
    around.save(tmp_path / "m.keras")
    with pytest.raises(CheckpointError, match="Save the model inside it"):
        keras_vit.load_checkpoint(model, tmp_path / "m.keras")


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("case", "usual", "other", "config"),
    [
        ("deit", "erf", "tanh", {}),
        ("hf", "erf", "tanh", {"architecture": []}),
        ("hf_siglip", "tanh", "erf", {"vision_config": [3]}),
    ],
)
def test_where_nothing_is_stated_another_gelu_than_the_usual_is_told(
    case, usual, other, config, load_beside
):
    load_beside(case, config, gelu=usual)
    with pytest.warns(UserWarning, match=f"states no activation.*gelu='{usual}' unless"):
        load_beside(case, config, gelu=other)
