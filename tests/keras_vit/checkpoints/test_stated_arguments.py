"""Heads, GELU and epsilon that a file states beside its arrays, compared with the model."""

import json
import warnings

import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, load_into_model

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


def test_another_function_is_told_and_other_heads_are_refused(load_stated):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load_stated()
    with pytest.warns(UserWarning, match="asks for gelu='erf'"):
        load_stated(gelu="tanh")
    with pytest.warns(UserWarning, match="asks for layer_norm_epsilon=1e-0"):
        load_stated(layer_norm_epsilon=1e-3)
    with pytest.raises(CheckpointError, match="the model has num_heads=4"):
        load_stated(num_heads=4)


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("config.json", {"hidden_act": "relu"}, "says 'relu'"),
        ("config.json", {"model_args": {"act_layer": "silu"}}, "says 'silu'"),
        ("config.json", {"model_args": {"num_heads": 1}}, "says num_heads=1"),
        ("preprocessor_config.json", {"do_flip_channel_order": True}, "flips the order"),
    ],
)
def test_what_no_model_here_computes_is_refused(
    name, config, message, cases, build_case, write_case, tmp_path
):
    path = write_case(cases["deit"], tmp_path)
    (tmp_path / name).write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        keras_vit.load_checkpoint(
            build_case(cases["deit"]), path, **HALF if name == "config.json" else {}
        )


def test_another_pooling_and_another_place_of_positions_are_told(
    cases, build_case, write_case, make_vit, tmp_path
):
    path = write_case(cases["deit"], tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"global_pool": "avg"}))
    with pytest.warns(UserWarning, match="asks for classifier='gap'"):
        keras_vit.load_checkpoint(build_case(cases["deit"]), path, **HALF)
    make_vit(position_placement="shared").save(tmp_path / "shared.keras")
    with pytest.warns(UserWarning, match="asks for position_placement='shared'"):
        keras_vit.load_checkpoint(make_vit(), tmp_path / "shared.keras")


@pytest.mark.parametrize("config", [{}, {"architecture": []}, {"vision_config": [3]}])
@pytest.mark.parametrize(("name", "usual"), [("deit", "erf"), ("hf", "erf"), ("hf_siglip", "tanh")])
def test_where_nothing_is_stated_another_gelu_than_the_usual_is_told(
    config, name, usual, cases, build_case, write_case, tmp_path
):
    path = write_case(cases[name], tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        keras_vit.load_checkpoint(build_case(cases[name], gelu=usual), path, **HALF)
    other = build_case(cases[name], gelu={"erf": "tanh", "tanh": "erf"}[usual])
    with pytest.warns(UserWarning, match=f"states no activation.*gelu='{usual}' unless"):
        keras_vit.load_checkpoint(other, path, **HALF)
