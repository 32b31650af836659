import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, library_configs, load_weights
from keras_vit.checkpoints.weights_of_model import POSITION_TABLE
from tests.keras_vit.small import edited, make_vit, positions_of, to_numpy

FIND = "keras_vit.checkpoints.load.find_checkpoint"
HALF = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
HUGGING_FACE = {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "num_attention_heads": 3}
CONFIGS = {"published": None, "timm": {"architecture": "deit_tiny_patch16_224"}}
CONFIGS |= {"hugging face": HUGGING_FACE, "its tower": {"vision_config": HUGGING_FACE}}


def refuse(model, path, load=keras_vit.load_checkpoint, **arguments):
    before = [to_numpy(v).tobytes() for v in model.variables]
    with pytest.raises(CheckpointError) as error:
        load(model, path, **arguments)
    assert [to_numpy(v).tobytes() for v in model.variables] == before
    return error.value


def test_missing_left_over_and_mis_shaped_arrays_are_listed(saved):
    changes = {"scale": None, "shift": np.zeros(16, "float32")}
    changes = {f"Transformer/encoder_norm/{name}": array for name, array in changes.items()}
    path = edited(saved, **changes, **{"embedding/bias": np.zeros(17, "float32")})
    error = refuse(make_vit(representation_size=12), path)
    assert error.missing == ("Transformer/encoder_norm/scale",)
    assert error.left_over == ("Transformer/encoder_norm/shift",)
    assert error.mis_shaped == ("embedding/bias",)
    assert "Transformer/encoder_norm/shift (16,)" in str(error)
    assert "embedding/bias is (17,), the model's is (16,)" in str(error)


@pytest.mark.parametrize("num_classes", [3, 5])
def test_a_skipped_head_stays_even_if_it_fits(num_classes, saved):
    model = make_vit(seed=1, representation_size=12, num_classes=num_classes)
    if num_classes == 3:
        error = refuse(model, saved)
        assert error.mis_shaped == ("head/kernel", "head/bias")
        assert 'pass skip=("head",)' in str(error)
    before = to_numpy(model.get_layer("head").kernel)
    keras_vit.load_checkpoint(model, saved, skip=("head",))
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), before)
    hidden = to_numpy(model.get_layer("pre_logits").kernel)
    np.testing.assert_array_equal(hidden, np.load(saved)["pre_logits/kernel"])


def test_a_table_of_positions_without_entries_is_refused(saved):
    path = edited(saved, **{POSITION_TABLE: np.zeros((1, 0, 16), "float32")})
    assert refuse(make_vit(representation_size=12), path).mis_shaped == (POSITION_TABLE,)


def test_skip_takes_whole_names_alone(saved):
    model = make_vit(representation_size=12)
    error = refuse(model, saved, skip=("hea", "head/k", "Head", "embedding/bias"))
    assert f"model or {saved} has. Received: 'hea', 'head/k', 'Head'. " in str(error)
    with pytest.raises(ValueError, match="must be a sequence of names"):
        keras_vit.load_checkpoint(model, saved, skip="head")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_must_be_finite_unless_they_are_skipped(value, saved):
    bad = np.array([[[value, *range(15)]]], "float32")
    model, path = make_vit(representation_size=12), edited(saved, cls=bad)
    assert "NaN or infinite values in: cls" in str(refuse(model, path))
    keras_vit.load_checkpoint(model, path, skip=("cls",))


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_table_without_a_stated_grid(saved, monkeypatch, caplog):
    """4 x 4 patches and 2 x 8 are as many: only the file or the caller can tell them apart."""
    model, path = make_vit(seed=1, representation_size=12, image_size=(8, 32)), edited(saved)
    table = np.load(path)["Transformer/posembed_input/pos_embedding"]
    with pytest.warns(UserWarning, match="2 x 8 is taken; the model has 2 x 8"):
        keras_vit.load_checkpoint(model, path)
    np.testing.assert_array_equal(positions_of(model), table)
    # Published files have a square grid, and callers know theirs.
    monkeypatch.setattr(FIND, lambda name: path)
    for name, grid in (("imagenet21k/ViT-B_16", None), (path, (4, 4))):
        keras_vit.load_checkpoint(model, name, position_grid=grid)
        square, resized = table[0, 1:].reshape(4, 4, 16), positions_of(model)[0, 1:]
        np.testing.assert_array_equal(resized.reshape(2, 8, 16)[:, [0, -1]], square[::3, [0, -1]])
    with pytest.warns(UserWarning, match="4 x 4 is taken; the model has 7 x 3"):
        keras_vit.load_checkpoint(make_vit(representation_size=12, image_size=(28, 12)), path)
    caplog.set_level("INFO", logger="keras_vit")
    keras_vit.load_checkpoint(make_vit(representation_size=12, image_size=28), path)
    assert "The 17 position embeddings of the file are taken for a grid of 4 x 4" in caplog.text


def test_a_rectangle_is_read_back_as_one_and_a_foreign_one_must_be_stated(tmp_path):
    model = make_vit(image_size=(8, 12))
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    for size in ((8, 12), (12, 8)):
        other = make_vit(seed=1, image_size=size)
        keras_vit.load_checkpoint(other, tmp_path / "a.npz")
        assert np.array_equal(positions_of(model), positions_of(other)) == (size == (8, 12))
    other, foreign = make_vit(seed=1), edited(tmp_path / "a.npz")
    assert "position_grid=(rows, columns)" in str(refuse(other, foreign))
    keras_vit.load_checkpoint(other, foreign, position_grid=(2, 3))
    table, source = positions_of(other)[0, 1:], positions_of(model)[0, 1:].reshape(2, 3, 16)
    np.testing.assert_array_equal(table.reshape(4, 4, 16)[::3, ::3], source[:, ::2])


def test_other_files_models_and_grids_are_refused(saved, tmp_path):
    for grid in (24, (4.0, 6.0), (-4, -6), (4, 6, 1)):
        with pytest.raises(ValueError, match=r"position_grid=\(rows, columns\), integers above 0"):
            keras_vit.load_checkpoint(make_vit(), saved, position_grid=grid)
    np.savez(tmp_path / "a.npz", weights=np.zeros(3, "float32"))
    assert "in no known format" in str(refuse(make_vit(), tmp_path / "a.npz"))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "none.npz")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="Received: Sequential"):
        keras_vit.load_checkpoint(model, saved)


@pytest.mark.rows(
    ({}, {"head"}),
    ({"num_classes": 3}, {"head"}),
    ({"representation_size": 12}, set()),
    ({"representation_size": 12, "num_classes": 3}, {"head"}),
    ({"num_classes": None}, set()),
)
def test_transfer(arguments, kept, saved):
    model = make_vit(seed=1, **arguments)
    before = [to_numpy(weight) for weight in model.weights]
    load_weights(model, saved)
    pairs = zip(model.weights, before, strict=True)
    same = {weight.path.split("/")[0] for weight, b in pairs if np.array_equal(b, to_numpy(weight))}
    assert same == kept


def test_transfer_is_strict_about_the_encoder(saved):
    missing = refuse(make_vit(num_layers=3), saved, load_weights).missing
    assert all("encoderblock_2" in name for name in missing)
    error = refuse(make_vit(representation_size=8), saved, load_weights)
    assert error.mis_shaped == ("pre_logits/kernel", "pre_logits/bias")


@pytest.mark.parametrize("of_file", [False, True])
def test_sums_of_lora_and_quantized_kernels_are_no_weights(of_file, saved, tmp_path):
    model = make_vit(representation_size=12)
    model.blocks[1].mlp.hidden_dense.enable_lora(2)
    assert "Load before `enable_lora`" in str(refuse(model, saved))
    model = make_vit()
    model.quantize("int8")
    if of_file:
        saved = tmp_path / "int8.keras"
        model.save(saved)
        model = make_vit()
    before = [to_numpy(v) for v in model.weights]
    for load_file in (keras_vit.load_checkpoint, load_weights):
        with pytest.raises(ValueError, match=r"Expected a model as it was trained\..*int8"):
            load_file(model, saved)
    assert all(map(np.array_equal, map(to_numpy, model.weights), before))


@pytest.fixture
def load_beside(cases, build_case, write_case, tmp_path, monkeypatch):
    """Returns a function that loads a golden case beside a JSON file, else as published."""

    def load(case, config, name="config.json", **overrides):
        path = write_case(cases[case], tmp_path)
        arguments = HALF if config is not None and name == "config.json" else {}
        if config is None:
            monkeypatch.setattr(FIND, lambda name, file=path: file)
            path = "timm/deit_tiny_patch16_224.fb_in1k"
        else:
            (tmp_path / name).write_text(json.dumps(config))
        keras_vit.load_checkpoint(build_case(cases[case], **overrides), path, **arguments)

    return load


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("stated", ["keras", *CONFIGS])
def test_another_function_is_told_and_other_heads_are_refused(stated, load_beside, tmp_path):
    own, file = {"gelu": "erf", "num_heads": 3}, tmp_path / "model.keras"
    if stated == "keras":
        own |= {"num_heads": 2, "layer_norm_epsilon": 1e-5}
        make_vit(**own).save(file)

    def load(**overrides):
        if stated == "keras":
            keras_vit.load_checkpoint(make_vit(**own | overrides), file)
        else:
            load_beside("deit", CONFIGS[stated], **own | overrides)

    load()
    with pytest.warns(UserWarning, match="asks for gelu='erf'"):
        load(gelu="tanh")
    with pytest.warns(UserWarning, match="asks for layer_norm_epsilon=1e-0"):
        load(layer_norm_epsilon=1e-3)
    with pytest.raises(CheckpointError, match="the model has num_heads=4"):
        load(num_heads=4)


@pytest.mark.rows(
    ("config.json", {"hidden_act": "relu"}, "says 'relu'"),
    ("config.json", {"model_args": {"act_layer": "silu"}}, "says 'silu'"),
    ("config.json", {"model_args": {"num_heads": 1}}, "says num_heads=1"),
    ("config.json", {"pooler_act": "relu"}, "pooler_act='relu'"),
    ("preprocessor_config.json", {"do_flip_channel_order": True}, "flips the order"),
)
def test_what_no_model_here_computes_is_refused(name, config, message, load_beside):
    with pytest.raises(CheckpointError, match=message):
        load_beside("deit", config, name, representation_size=48)


def test_another_pooling_and_another_place_of_positions_are_told(load_beside, tmp_path):
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
        keras_vit.load_checkpoint(make_vit(position_embedding="sincos_2d"), tmp_path / "none.keras")
    without = CONFIGS["timm"] | {"model_args": {"pos_embed": "none"}}
    assert library_configs.stated_arguments(without)["position_embedding"] == "none"


def test_the_head_of_a_keras_file_brings_its_classes(tmp_path):
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
    keras.Sequential([keras.Input(model.input_shape[1:]), model]).save(tmp_path / "m.keras")
    with pytest.raises(CheckpointError, match="Save the model inside it"):
        keras_vit.load_checkpoint(model, tmp_path / "m.keras")


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.rows(
    ("deit", "erf", "tanh", {}),
    ("hf", "erf", "tanh", {"architecture": []}),
    ("hf_siglip", "tanh", "erf", {"vision_config": [3]}),
)
def test_an_unusual_gelu_is_told(case, usual, other, config, load_beside):
    load_beside(case, config, gelu=usual)
    with pytest.warns(UserWarning, match=f"states no activation.*gelu='{usual}' unless"):
        load_beside(case, config, gelu=other)
