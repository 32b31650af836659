import pytest

from keras_vit import export
from keras_vit.training.inference.interface import interface_of, labels_of
from tests.export.conftest import LABELS

WRITERS = (export.to_hub, export.to_tflite)
NO_LABELS = (None, "two\nlines", "a\0", "", 5, "\ufeffa", b"a")


@pytest.mark.rows(
    (export.to_hub, "(-1, 1)"), *((export.to_tflite, text) for text in ("(-1, 1)", "", "(high=1)"))
)
def test_a_model_hands_over_its_classes_and_photos(write, model_range, make_vit, tmp_path):
    model = make_vit(num_layers=1)
    model.class_names = LABELS
    model.preprocessing = f"decode|resize_small(40)|central_crop(32)|value_range{model_range}"
    path = write(model, tmp_path / "m", activation="sigmoid")
    assert labels_of(path) == LABELS
    assert interface_of(path) == {
        "image_size": [32, 32],
        "image_range": [0, 1],
        "preprocessing": "decode|resize_small(40)|central_crop(32)|value_range(0,1)",
        "classifies": "image",
        "activation": "sigmoid",
    }


@pytest.mark.parametrize("other", ["value_range(0,1)", "own_operation", "value_range("])
def test_photos_of_another_range_are_resized_and_it_is_said(make_vit, tmp_path, caplog, other):
    model = make_vit(num_layers=1)
    model.preprocessing = f"decode|resize(32)|{other}"
    found = interface_of(export.to_tflite(model, tmp_path / "m"))
    assert found["preprocessing"] == "decode|resize([32,32])|value_range(0,1)"
    assert "exported resizes them instead" in caplog.text


@pytest.mark.parametrize("write", WRITERS)
def test_photos_prepared_to_another_size_are_refused(make_vit, write, tmp_path):
    model = make_vit(num_layers=1)
    model.preprocessing = "decode|resize(40)|value_range(-1,1)"
    with pytest.raises(ValueError, match=r"images of \(32, 32\).* which makes \(40, 40\)"):
        write(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rows(
    (export.to_hub, {"output": "logits"}), (export.to_tflite, {"probabilities": True})
)
def test_without_a_head_there_are_no_names_and_no_activation(write, of_a_head, make_vit, tmp_path):
    model = make_vit(num_layers=1, num_classes=None)
    path = write(model, tmp_path / "m")
    assert labels_of(path) is None and interface_of(path)["activation"] is None
    with pytest.raises(ValueError, match="no labels"):
        write(model, tmp_path / "n", labels=LABELS)
    with pytest.raises(ValueError, match="`activation` must be one of"):
        write(model, tmp_path / "n", activation="none")
    with pytest.raises(ValueError, match="no head"):
        write(model, tmp_path / "n", **of_a_head)


@pytest.mark.rows(
    (LABELS[:4], "5 classes"),
    *((kind(LABELS), "Expected a list") for kind in (set, str, dict.fromkeys)),
    *(([*LABELS[:4], each], "of one line") for each in NO_LABELS),
)
def test_labels_must_fit_the_head(labels, message, tiny, tmp_path):
    for write in WRITERS:
        with pytest.raises(ValueError, match=message):
            write(tiny, tmp_path / "m", labels=labels)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_lost_its_end_is_not_one_without_texts(make_vit, tmp_path):
    file = export.to_tflite(make_vit(num_layers=1), tmp_path / "m.tflite", labels=LABELS)
    file.write_bytes(file.read_bytes()[:-100])
    for read in (labels_of, interface_of):
        with pytest.raises(ValueError, match="the end of the file is missing"):
            read(file)
    file.write_bytes(b"TFL3" * 20)
    assert labels_of(file) is None and interface_of(file) == {}
