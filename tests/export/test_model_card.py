import json
import re

import pytest

from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.model_card import Handle, write_card


@pytest.fixture(scope="module")
def model(make_vit):
    return make_vit(num_layers=1)


@pytest.fixture(scope="module")
def module_report(model, images, tmp_path_factory):
    module = export.to_hub(model, tmp_path_factory.mktemp("card") / "m")
    return export.verify(model, module, images, [0] * 8, costs=False)


@pytest.fixture(scope="module")
def lite_report(model, images, tmp_path_factory):
    file = export.to_tflite(model, tmp_path_factory.mktemp("card") / "m.tflite")
    return export.verify(model, file, images)


def test_the_page_has_the_keys_and_facts_that_tf_hub_asks_for(model, module_report, tmp_path):
    handle = Handle.parse("me/tiny_vit/2")
    page, *_ = write_card(model, module_report, handle, tmp_path, config={"dataset": "digits"})
    assert page.name == "tiny-vit.md"
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == "# Module me/tiny_vit/2"
    assert lines[2] == "Classifies images into 5 classes."
    keys = dict(re.findall(r"<!-- ([\w-]+): (.+) -->", text))
    assert keys == {
        "asset-path": "tiny-vit.tar.gz",
        "task": "image-classification",
        "fine-tunable": "true",
        "format": "saved_model_2",
        "dataset": "digits",
        "network-architecture": "vision-transformer",
        "license": "apache-2.0",
    }
    for fact in ("[0, 1]", "32 x 32 pixels", "(batch, 5)", "tf.nn.softmax", "momentum 0.9"):
        assert fact in text
    assert f"| parameters | {model.count_params():,} |" in text


def test_the_page_says_which_classes_and_how_photos_are_prepared(make_vit, module_report, tmp_path):
    model = make_vit(num_layers=1, num_classes=30)
    model.class_names = [f"bird {number}" for number in range(30)]
    model.preprocessing = "decode|resize(32)|value_range(-1,1)"
    page, *_ = write_card(model, module_report, Handle.parse("me/tiny_vit/2"), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "Classes: bird 0, bird 1, " in text and "bird 19 and 10 more." in text
    assert "`decode|resize(32)|value_range(0,1)`" in text


def test_a_card_shows_names_as_they_are_and_no_folder_of_the_machine(
    make_vit, module_report, tmp_path
):
    model = make_vit(num_layers=1)
    model.class_names = ["<script>x</script>", "[a](b)", "c|d", "e", "f"]
    config = {"dataset": "folder:/home/me/secret/birds"}
    files = write_card(model, module_report, Handle.parse("me/v/1"), tmp_path, config=config)
    text = files[0].read_text(encoding="utf-8")
    assert r"Classes: &lt;script&gt;x&lt;/script&gt;, \[a\](b), c\|d, e, f." in text
    assert "<!-- dataset: birds -->" in text
    assert not any("secret" in file.read_text(encoding="utf-8") for file in files)


def test_every_figure_comes_from_the_verifier(model, lite_report, tmp_path):
    page, *_ = write_card(model, lite_report, Handle.parse("me/tiny/1"), tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Lite me/tiny/1\n")
    assert "parent-model: me/tiny/1" in text
    _, figures = text.split("## Verification")
    for name, value in lite_report.rows():
        if name not in ("artifact", "result"):
            assert f"| {name} | {value} |" in figures


def test_kaggle_metadata(model, module_report, lite_report, tmp_path):
    handle = Handle.parse("me/tiny/1")
    page, about, variation = write_card(
        model, module_report, handle, tmp_path / "hub", config={"dataset": "digits"}
    )
    about, variation = json.loads(about.read_text()), json.loads(variation.read_text())
    assert set(about) == {
        "ownerSlug",
        "title",
        "slug",
        "subtitle",
        "isPrivate",
        "description",
        "publishTime",
        "provenanceSources",
    }
    assert about["description"] == page.read_text(encoding="utf-8")
    assert (about["ownerSlug"], about["slug"]) == ("me", "tiny")
    assert variation["framework"] == "tensorFlow2" and variation["fineTunable"] is True
    assert variation["instanceSlug"] == "32x32-classification"
    assert variation["licenseName"] == "Apache 2.0"
    assert variation["trainingData"] == ["digits"]
    assert "${PATH}" in variation["usage"] and "${VERSION_NUMBER}" in variation["usage"]

    *_, variation = write_card(model, lite_report, handle, tmp_path / "lite")
    variation = json.loads(variation.read_text())
    assert (variation["framework"], variation["instanceSlug"]) == ("tfLite", "32x32-none")
    assert variation["fineTunable"] is False and "${PATH}" in variation["usage"]


def test_only_good_artifacts_get_a_card(make_vit, model, lite_report, images, tmp_path):
    wrong = make_vit(num_layers=1)
    wrong.get_layer("head").kernel.assign(-wrong.get_layer("head").kernel)
    report = export.verify(wrong, lite_report.artifact, images, costs=False)
    with pytest.raises(ExportError, match="verified artifact"):
        write_card(wrong, report, Handle.parse("me/tiny/1"), tmp_path)
    with pytest.raises(ExportError, match="license"):
        write_card(model, lite_report, Handle.parse("me/tiny/1"), tmp_path, license="mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["tiny", "me/tiny", "me/tiny/0", "me/tiny/one", "Me/tiny/1", ""])
def test_handles_are_checked(text):
    with pytest.raises(ExportError, match="PUBLISHER/MODEL/VERSION"):
        Handle.parse(text)
    assert str(Handle.parse("me/vit/b16/3")) == "me/vit/b16/3"
