import dataclasses
import json
import re

import keras
import pytest

from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.model_card import require_handle, write_card
from keras_vit.export.supported_models import portable
from tests.export.conftest import LABELS, verify


@pytest.fixture(scope="module")
def module_report(tiny, tiny_module, images):
    return verify(tiny, tiny_module, images, [0] * 8)


@pytest.fixture(scope="module")
def lite_report(tiny, tiny_tflite, images):
    return export.verify(tiny, tiny_tflite, images)


@pytest.fixture
def texts(tiny, tmp_path):
    def write(report, model=tiny, handle="me/tiny_vit/2", **options):
        options = {"license": "apache-2.0", **options}
        files = write_card(model, report, handle, tmp_path, **options)
        assert files[0].name == "tiny-vit.md"
        return [file.read_text(encoding="utf-8") for file in files]

    return write


def test_the_page_has_the_facts_of_tf_hub_and_of_photos(tiny, module_report, texts, make_vit):
    page, *_ = texts(
        module_report, dataset="digits", training={"top-1": "91.00 %", "step of the model": "120"}
    )
    assert page.startswith("# Module me/tiny_vit/2\n\nClassifies images into 5 classes.\n")
    expected = {"asset-path": "tiny-vit.tar.gz", "format": "saved_model_2", "dataset": "digits"}
    expected |= {"task": "image-classification", "network-architecture": "vision-transformer"}
    expected |= {"fine-tunable": "true", "license": "apache-2.0"}
    assert dict(re.findall(r"<!-- ([\w-]+): (.+) -->", page)) == expected
    assert (
        "## Training\n\n| | |\n| --- | --- |\n| top-1 | 91.00 % |\n| step of the model | 120 |"
        in page
    )
    for fact in ("[0, 1]", "32 x 32 pixels", "(batch, 5)", f"{tiny.count_params():,}"):
        assert fact in page
    model = make_vit(num_layers=1, num_classes=30)
    model.class_names = ["<script>x</script>", "[a](b)", "c|d", *(f"bird {i}" for i in range(27))]
    model.preprocessing = "decode|resize(32)|value_range(-1,1)"
    found = texts(module_report, model, dataset="folder:/home/me/secret/birds")
    # Names as they are, and no folder of the machine.
    names = r"&lt;script&gt;x&lt;/script&gt;; \[a\](b); c\|d; bird 0; "
    assert f"Classes: {names}" in found[0] and "bird 16 and 10 more." in found[0]
    assert "`decode|resize(32)|value_range(0,1)`" in found[0]
    assert "<!-- dataset: birds -->" in found[0] and not any("secret" in text for text in found)


def test_a_model_around_ours_has_its_architecture(tiny, module_report, texts, tmp_path):
    inputs = keras.Input((32, 32, 3))
    around = portable(keras.Model(inputs, tiny(inputs)))
    module = export.to_hub(tiny, tmp_path / "module", labels=LABELS)
    page, *_ = texts(dataclasses.replace(module_report, artifact=str(module)), around)
    assert "<!-- network-architecture: vision-transformer -->" in page
    assert f"Classes: {'; '.join(LABELS)}." in page


def test_a_segmenter_has_the_card_of_its_masks(segmenter, segmenter_tflite, scenes, texts):
    report = verify(segmenter, segmenter_tflite, scenes)
    page, _, kaggle = texts(dataclasses.replace(report, kind="hub"), segmenter)
    assert "Tells 5 classes of pixels apart." in page and "(batch, 32, 48, 5)" in page
    assert "<!-- task: image-segmentation -->" in page and "agreement of pixels" in page
    assert json.loads(kaggle)["instanceSlug"] == "32x48-segmentation"


def test_every_figure_comes_from_the_verifier(lite_report, texts):
    page, *_ = texts(lite_report)
    assert page.startswith("# Lite me/tiny_vit/2\n") and "parent-model: me/tiny_vit/2" in page
    _, figures = page.split("## Verification")
    for name, value in lite_report.rows():
        assert name in ("artifact", "result") or f"| {name} | {value} |" in figures


def test_kaggle_metadata(module_report, lite_report, texts):
    page, *metadata = texts(
        module_report, dataset="digits", training={"top-1": "91.00 %", "step of the model": "120"}
    )
    about, module = map(json.loads, metadata)
    assert (about["ownerSlug"], about["slug"], about["isPrivate"]) == ("me", "tiny-vit", True)
    assert about["description"] == page
    assert (module["licenseName"], module["trainingData"]) == ("Apache 2.0", ["digits"])
    found = [module, json.loads(texts(lite_report)[-1])]
    assert [(each["framework"], each["instanceSlug"], each["fineTunable"]) for each in found] == [
        ("tensorFlow2", "32x32-classification", True),
        ("tfLite", "32x32-none", False),
    ]
    assert all("${PATH}" in each["usage"] for each in found)


def test_only_good_artifacts_get_a_card(tiny, lite_report, tmp_path):
    bad = dataclasses.replace(lite_report, failures=("largest error",))
    no_handles = ("tiny", "me/tiny", "me/tiny/0", "me/tiny/one", "Me/tiny/1", "")
    for report, handle, license, message in (
        (bad, "me/tiny/1", "mit", "verified artifact"),
        (lite_report, "me/tiny/1", "mine", "license"),
        *((lite_report, handle, "mit", "PUBLISHER/MODEL/VERSION") for handle in no_handles),
    ):
        with pytest.raises(ExportError, match=message):
            write_card(tiny, report, handle, tmp_path, license=license)
    assert list(tmp_path.iterdir()) == []
    assert require_handle("me/vit/b16/3").groups() == ("me", "vit/b16")


def test_weights_of_dinov3_are_passed_on_under_their_license(module_report, texts, make_vit):
    model = portable(make_vit(num_layers=1, dtype="mixed_bfloat16"))
    model.license = "dinov3-license"
    with pytest.raises(ExportError, match="Expected license='dinov3-license', that of the publish"):
        texts(module_report, portable(model, "float16"))
    page, _, variation = texts(module_report, model, license="dinov3-license")
    assert "## License\n\nThese weights derive from DINOv3's." in page
    assert json.loads(variation)["licenseName"] == "Other (specified in description)"
