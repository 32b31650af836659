import pathlib
import subprocess
import sys

import pytest

from keras_vit.checkpoints.model_source import Kind, model_source

SOURCES = {
    Kind.RUN: ["run/config.json", "run/model.keras", "run/saved"],
    Kind.UNFINISHED_RUN: ["stopped/config.json", "stopped/metrics.csv"],
    Kind.KERAS: ["m.keras"],
    Kind.CHECKPOINT: ["ViT-B_16.npz"],
    Kind.LIBRARY_FOLDER: ["hub/config.json", "hub/model.safetensors"],
    Kind.HUB: ["module/saved_model.pb", "module/assets"],
    Kind.TFLITE: ["m.tflite"],
    Kind.ONNX: ["m.onnx"],
    Kind.WEB_PAGE: ["page/code/runtime.js", "page/index.html"],
    Kind.FOLDER: ["photos/a.png"],
}


@pytest.mark.parametrize("kind", SOURCES)
def test_kinds_of_what_exists(kind, tmp_path):
    for file in SOURCES[kind]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    path = tmp_path / SOURCES[kind][0].split("/")[0]
    for source in (path, str(path)):
        found = model_source(source)
        assert (found.kind, found.path) == (kind, path)
    assert found.file is None if kind == Kind.FOLDER else found.file.exists()
    assert found.is_keras == (kind in (Kind.RUN, Kind.KERAS))
    run = kind in (Kind.RUN, Kind.UNFINISHED_RUN)
    assert found.run_config == (path / "config.json" if run else None)


@pytest.mark.rows(
    "augreg/B_16", "augreg/ViT-B_16.npz", "gsam/ViT-S_16", "timm/vit_base_patch16_224.mae"
)
def test_a_path_comes_before_a_published_name(name, tmp_path, monkeypatch):
    assert model_source(name).kind == Kind.PUBLISHED
    monkeypatch.chdir(tmp_path)
    pathlib.Path(name).mkdir(parents=True)
    assert model_source(name).kind == Kind.FOLDER


@pytest.mark.parametrize("name", ["augreg/B_17", "nowhere", "m.keras", "gsam", "ViT-B/16"])
def test_nothing_is_there(name):
    assert model_source(name).kind == Kind.NOTHING


@pytest.mark.parametrize("library", ["model.safetensors.index.json", "pytorch_model.bin"])
def test_a_configuration_of_another_library_makes_no_run(library, tmp_path):
    (tmp_path / "config.json").touch()
    assert model_source(tmp_path).kind == Kind.UNFINISHED_RUN
    (tmp_path / library).touch()
    found = model_source(tmp_path)
    assert found.kind == Kind.LIBRARY_FOLDER and found.run_config is None


def test_it_answers_before_keras_is_imported():
    code = "import sys; sys.orig_argv = ['python', '-m', 'keras_vit'];"
    code += "import keras_vit.checkpoints.model_source; assert 'keras' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
