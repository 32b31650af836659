"""What a file says of its model beside its arrays, compared with the model."""

import json
import warnings

import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, load

SAVED = {"num_heads": 2, "gelu": "erf", "layer_norm_epsilon": 1e-5}


@pytest.fixture
def states(cases, build_case, write_case, make_vit, tmp_path, monkeypatch):
    """Returns functions of a model's arguments, which load a file that states `SAVED` or timm's."""

    def of_keras(**overrides):
        make_vit(**SAVED).save(tmp_path / "model.keras")
        keras_vit.load_checkpoint(make_vit(**SAVED | overrides), tmp_path / "model.keras")

    def of_timm(**overrides):
        path = write_case(cases["deit"], tmp_path)
        config = {"architecture": "deit_tiny_patch16_224"}
        (path.parent / "config.json").write_text(json.dumps(config))
        model = build_case(cases["deit"], **{"gelu": "erf", "num_heads": 3} | overrides)
        keras_vit.load_checkpoint(model, path, mean=(0.5,) * 3, std=(0.5,) * 3)

    def of_name(**overrides):
        path = write_case(cases["deit"], tmp_path)
        monkeypatch.setattr(load, "find_checkpoint", lambda name: path)
        model = build_case(cases["deit"], **{"gelu": "erf", "num_heads": 3} | overrides)
        keras_vit.load_checkpoint(model, "timm/deit_tiny_patch16_224.fb_in1k")

    return {"keras": of_keras, "timm": of_timm, "name": of_name}


@pytest.mark.parametrize("origin", ["keras", "timm", "name"])
def test_another_function_is_told(origin, states):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        states[origin]()
    with pytest.warns(UserWarning, match="asks for gelu='erf'"):
        states[origin](gelu="tanh")
    with pytest.warns(UserWarning, match="asks for layer_norm_epsilon=1e-0"):
        states[origin](layer_norm_epsilon=1e-3)


@pytest.mark.parametrize("config", [{"architecture": []}, {"vision_config": [3]}])
def test_what_says_nothing_is_not_compared(config, cases, build_case, write_case, tmp_path):
    path = write_case(cases["deit"], tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    keras_vit.load_checkpoint(build_case(cases["deit"]), path, mean=(0.5,) * 3, std=(0.5,) * 3)


@pytest.mark.parametrize("origin", ["keras", "timm", "name"])
def test_other_heads_are_refused(origin, states):
    with pytest.raises(CheckpointError, match="the model has num_heads=4"):
        states[origin](num_heads=4)
