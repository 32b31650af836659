from unittest import mock

import numpy as np
import pytest

import keras_vit
from keras_vit.__main__ import main
from keras_vit.training.data.preprocessing.preprocess import read_images
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos
from tests.training.runs import read_csv


def small(**arguments):
    return tiny_vit(image_size=(16, 24), num_layers=1, **arguments)


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path / "photos", [f"inner/{index}.png" for index in range(4)])
    return tmp_path / "photos"


def test_numbers_are_those_of_the_functions(tmp_path, photos, capsys, monkeypatch):
    figures = keras_vit.analysis.figures
    drawn = mock.Mock(wraps=figures.rollout_figure)
    monkeypatch.setattr(figures, "rollout_figure", drawn)
    model = small()
    model.preprocessing = "decode|resize_small(32)|central_crop([16,24])|value_range(-1,1)"
    model.save(tmp_path / "model.keras")
    (photos / "broken.png").write_bytes(b"no image")
    output = tmp_path / "analysis"
    arguments = [str(tmp_path), "--images", str(photos), "--output", str(output), "--shown=2"]
    assert main(["analyze", *arguments]) == 0
    assert "Left out: " in (said := capsys.readouterr().err) and "broken.png" in said
    names = ("filters", "position_similarity", "rollout", "attention_distance")
    files = {f"{name}.{kind}" for name in names for kind in ("csv", "png")}
    assert {path.name for path in output.iterdir()} == files
    for name in names:
        assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")

    def numbers(name, key):
        return np.array([float(row[key]) for row in read_csv(output / f"{name}.csv")])

    values = numbers("position_similarity", "similarity").reshape(4, 6, 4, 6)
    np.testing.assert_allclose(values, keras_vit.analysis.position_similarity(model), atol=1e-5)
    maps = numbers("rollout", "attention").reshape(4, 4, 6)
    images = read_images(sorted(photos.glob("inner/*")), model.preprocessing)
    np.testing.assert_allclose(maps, keras_vit.analysis.attention_rollout(model, images), atol=1e-4)
    *arrays, stride = drawn.call_args.args
    assert stride == model.token_stride
    for found, every in zip(arrays, (images, maps), strict=True):
        np.testing.assert_allclose(found, every[[0, 2]], atol=1e-4)
    expected = np.ravel(keras_vit.analysis.attention_distance(model, images))
    np.testing.assert_allclose(numbers("attention_distance", "pixels"), expected, rtol=1e-4)
    expected = keras_vit.analysis.embedding_filters(model).explained
    np.testing.assert_allclose(numbers("filters", "explained"), expected, rtol=1e-5)


def test_images_of_a_data_set_and_what_a_model_lacks(data_dir, tmp_path, printed):
    model = small(attention="axial", classifier="gap", position_embedding="none")
    model.save(tmp_path / "axial.keras")
    arguments = [str(tmp_path / "axial.keras"), "--dataset=digits", "--count=2"]
    arguments += [f"--data_dir={data_dir}", f"--output={tmp_path / 'analysis'}"]
    said = printed("analyze", *arguments)
    assert "Without rollout: axial attention" in said and "Without position_similarity" in said
    assert {path.stem for path in (tmp_path / "analysis").iterdir()} == {"filters"}


def test_a_masked_model_shows_its_predictions(tmp_path, photos):
    keras_vit.MaskedPatchPrediction(small(num_classes=None)).save(tmp_path / "masked.keras")
    arguments = [str(tmp_path / "masked.keras"), "--images", str(photos / "inner" / "1.png")]
    assert main(["analyze", *arguments, f"--output={tmp_path / 'analysis'}"]) == 0
    rows = read_csv(tmp_path / "analysis" / "reconstruction.csv")
    assert len(rows) == len({row["patch"] for row in rows}) == 12
    np.testing.assert_allclose([float(row["loss"]) for row in rows], np.log(512), rtol=1e-5)


def test_a_checkpoint_with_its_models_name(shallow, tmp_path):
    model = keras_vit.create_model("ViT-Ti/16", num_classes=2, image_size=32)
    keras_vit.save_checkpoint(model, tmp_path / "tiny.npz")
    output = tmp_path / "analysis"
    arguments = [str(tmp_path / "tiny.npz"), "--model=ViT-Ti/16", "--image_size=48"]
    assert main(["analyze", *arguments, f"--output={output}"]) == 0
    assert len(read_csv(output / "position_similarity.csv")) == 9 * 9
    assert not (output / "rollout.png").exists()


def test_mistakes_are_named_and_leave_nothing(tmp_path, refused):
    model, broken = tmp_path / "model.keras", tmp_path / "broken.jpg"
    small().save(model)
    (tmp_path / "empty").mkdir()
    broken.write_bytes(b"not an image")
    for arguments, message in (
        (["missing.npz"], "--model"),
        ([model, "--images", "missing.jpg"], "missing.jpg"),
        ([model, "--images", tmp_path / "empty"], "Received: none"),
        ([model, "--images", broken], "none that can be read"),
        ([model, "--images", broken, "--split=test"], "either --images"),
    ):
        arguments = [*map(str, arguments), f"--output={tmp_path / 'analysis'}"]
        assert message in refused("analyze", *arguments)
        assert not (tmp_path / "analysis").exists()
