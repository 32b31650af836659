"""The analysis command: pictures and numbers of models, from files, folders and data sets."""

import csv

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training.commands import analyze
from keras_vit.training.data.preprocessing.preprocess import read_images
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def noise(seed, shape):
    return np.random.default_rng(seed).integers(0, 256, shape)


def small(**arguments):
    return tiny_vit(image_size=(16, 24), **arguments)


@pytest.fixture
def photos(tmp_path):
    names = [f"inner/{index}.png" for index in range(4)]
    write_photos(tmp_path / "photos", names, lambda number: noise(number, (40, 60, 3)))
    return tmp_path / "photos"


def test_numbers_are_those_of_the_functions_on_images_as_the_model_wants_them(
    tmp_path, photos, capsys, monkeypatch
):
    keras.utils.set_random_seed(0)
    figures, shown = keras_vit.analysis.figures, []
    draw = figures.rollout_figure
    monkeypatch.setattr(
        figures,
        "rollout_figure",
        lambda *args, **options: shown.append(args) or draw(*args, **options),
    )
    model = small(num_layers=1)
    model.preprocessing = "decode|resize_small(32)|central_crop([16,24])|value_range(-1,1)"
    model.save(tmp_path / "model.keras")
    (photos / "broken.png").write_bytes(b"no image")
    output = tmp_path / "analysis"
    arguments = [str(tmp_path), "--images", str(photos), "--output", str(output), "--shown=2"]
    assert analyze.main(arguments) == 0
    assert "Left out: " in (said := capsys.readouterr().err) and "broken.png" in said
    names = ("filters", "position_similarity", "rollout", "attention_distance")
    assert sorted(path.name for path in output.iterdir()) == sorted(
        f"{name}.{kind}" for name in names for kind in ("csv", "png")
    )
    for name in names:
        assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")

    similarity = keras_vit.analysis.position_similarity(model)
    rows = read(output / "position_similarity.csv")
    values = np.array([float(row["similarity"]) for row in rows]).reshape(4, 6, 4, 6)
    np.testing.assert_allclose(values, similarity, atol=1e-5)
    rows = read(output / "rollout.csv")
    maps = np.array([float(row["attention"]) for row in rows]).reshape(4, 4, 6)
    images = read_images(sorted(photos.glob("inner/*")), model.preprocessing)
    np.testing.assert_allclose(maps, keras_vit.analysis.attention_rollout(model, images), atol=1e-4)
    for found, every in zip(shown[0], (images, maps), strict=True):
        np.testing.assert_allclose(found, every[[0, 2]], atol=1e-4)
    distances = [float(row["pixels"]) for row in read(output / "attention_distance.csv")]
    expected = keras_vit.analysis.attention_distance(model, images)
    np.testing.assert_allclose(distances, np.ravel(expected), rtol=1e-4)
    explained = [float(row["explained"]) for row in read(output / "filters.csv")]
    expected = keras_vit.analysis.embedding_filters(model).explained
    np.testing.assert_allclose(explained, expected, rtol=1e-5)


def test_images_of_a_data_set_and_what_a_model_lacks(data_dir, tmp_path, capsys):
    model = small(attention="axial", classifier="gap", position_embedding="none", num_layers=1)
    model.save(tmp_path / "axial.keras")
    arguments = [str(tmp_path / "axial.keras"), "--dataset=digits", "--count=2"]
    arguments += [f"--data_dir={data_dir}", f"--output={tmp_path / 'analysis'}"]
    assert analyze.main(arguments) == 0
    said = capsys.readouterr().out
    assert "Without rollout: axial attention" in said
    assert "Without position_similarity" in said
    assert {path.stem for path in (tmp_path / "analysis").iterdir()} == {"filters"}


def test_a_masked_model_shows_its_predictions(tmp_path, photos):
    masked = keras_vit.MaskedPatchPrediction(small(num_classes=None, num_layers=1))
    masked.save(tmp_path / "masked.keras")
    arguments = [str(tmp_path / "masked.keras"), "--images", str(photos / "inner" / "1.png")]
    assert analyze.main([*arguments, f"--output={tmp_path / 'analysis'}"]) == 0
    rows = read(tmp_path / "analysis" / "reconstruction.csv")
    assert len(rows) == 12
    assert len({row["patch"] for row in rows}) == 12
    np.testing.assert_allclose([float(row["loss"]) for row in rows], np.log(512), rtol=1e-5)


def test_a_checkpoint_with_its_models_name(shallow, tmp_path):
    model = keras_vit.create_model("ViT-Ti/16", num_classes=2, image_size=32)
    keras_vit.save_checkpoint(model, tmp_path / "tiny.npz")
    output = tmp_path / "analysis"
    arguments = [str(tmp_path / "tiny.npz"), "--model=ViT-Ti/16", "--image_size=48"]
    assert analyze.main([*arguments, f"--output={output}"]) == 0
    assert len(read(output / "position_similarity.csv")) == 9 * 9
    assert not (output / "rollout.png").exists()


def test_mistakes_are_named_and_leave_nothing(tmp_path, capsys):
    model, broken = tmp_path / "model.keras", tmp_path / "broken.jpg"
    small(num_layers=1).save(model)
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
        assert analyze.main(arguments) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "analysis").exists()
