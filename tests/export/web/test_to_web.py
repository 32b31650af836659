import json
import re

import numpy as np
import pytest

from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.web.to_web import VERSION, litert_js, page_operations
from keras_vit.training.inference.interface import labels_of
from keras_vit.training.reporting import collect_run_results
from tests.export.conftest import verify


def settings_of(page):
    return json.loads(re.search(r'id="settings">(.*?)</script>', page.read_text(), re.DOTALL)[1])


def test_a_folder_has_all_that_the_page_asks_for(site):
    settings, text = settings_of(site / "index.html"), (site / "index.html").read_text()
    assert settings["labels"] == ["crow", "finch", "great tit", "a < b", "heron"]
    assert "a < b" not in text and "Birds &amp; co" in text
    assert settings["image_size"] == [32, 32] and settings["rollout"] == [4, 4]
    operations = {each.pop("name"): each for each in settings["operations"]}
    assert [*operations] == ["decode", "resize_small", "central_crop", "value_range"]
    assert operations["resize_small"] == {"size": 36, "method": "area", "antialias": False}
    for name, asset in settings["assets"].items():
        file = site / "assets" / f"{name}{asset['suffix']}"
        assert file.stat().st_size == asset["bytes"]
    for file in settings["files"]:
        assert (site / file).exists()
    assert "Apache License" in (site / "assets/LICENSE-LiteRT.txt").read_text()
    assert labels_of(site / "assets/model.tflite") == settings["labels"]
    addresses = re.findall(r"https?://[^\s'\"]+", text)
    assert set(addresses) <= {"http://www.w3.org/2000/svg", "http://localhost:8000."}
    # And the report of a run links to the page.
    assert "site/index.html" in collect_run_results._files(site.parent)


@pytest.mark.parametrize("single_file", [False, True])
def test_settings_that_are_not_the_files_fail(model, images, tmp_path, single_file):
    options = {"quantization": "none", "single_file": single_file, "labels": list("abcde")}
    page = export.to_web(model, tmp_path / "p.html", **options)
    file = page if single_file else page / "index.html"
    text = file.read_text()
    assert verify(model, page, images[:1]).ok
    text = text.replace('["a", "b"', '["b", "a"').replace('"rollout": [4', '"rollout": [2')
    file.write_text(text.replace('"softmax"', '"sigmoid"'))
    labels, activation, rollout = verify(model, page, images[:1]).failures
    assert "the page's rollout is [2, 4], its file's [4, 4]" in rollout
    assert "the page's labels is ['b', 'a'" in labels
    assert "the page's activation is 'sigmoid', its file's 'softmax'" in activation


@pytest.mark.long
def test_a_page_is_replaced_but_nothing_else(site, model, tmp_path):
    before = settings_of(site / "index.html")["version"]
    path, mine = tmp_path / "site", tmp_path / "site/code/mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(FileExistsError):
        export.to_web(model, path, quantization="none")
    mine.rename(mine.with_name("runtime.js"))
    export.to_web(model, path, quantization="none")
    assert settings_of(path / "index.html")["version"] != before  # it has no examples


def test_operations_are_those_that_json_brings_back():
    operations = page_operations("decode|resize((32, 48))|value_range(0,1)", (32, 48))
    assert operations == json.loads(json.dumps(operations))


def test_what_no_page_can_show_is_refused(make_vit, tmp_path):
    with pytest.raises(ExportError, match="a model with a head"):
        export.to_web(make_vit(num_classes=None), tmp_path / "site")
    model = make_vit(num_layers=1)
    model.preprocessing = "decode|resize(32,method='bicubic')|value_range(-1,1)"
    with pytest.raises(ExportError, match="cannot prepare images as the model wants"):
        export.to_web(model, tmp_path / "site")
    model.preprocessing = "decode|resize(16)|value_range(-1,1)"
    with pytest.raises(ExportError, match=r"Expected operations that give.*\(16, 16, 3\)"):
        export.to_web(model, tmp_path / "site")
    model.preprocessing = None
    with pytest.raises(ExportError, match=r"look like \[0, 255\]"):
        export.to_web(model, tmp_path / "site", examples=[np.full((8, 8, 3), 255.0)])
    assert not (tmp_path / "site").exists()


def test_another_litert_js_is_refused(tmp_path):
    with pytest.raises(ExportError, match="npm pack @litertjs/core@"):
        litert_js(tmp_path)
    (tmp_path / f"litertjs-core-{VERSION}.tgz").write_bytes(b"another")
    with pytest.raises(ExportError, match="with the hash sha512-"):
        litert_js(tmp_path)


def test_models_without_a_map_have_no_switch(make_vit, with_litert_js, tmp_path):
    axial = make_vit(attention="axial", classifier="gap", num_layers=1)
    settings = settings_of(export.to_web(axial, tmp_path / "axial.html", single_file=True))
    assert settings["rollout"] is None and "integers" in settings["without_gpu"]
