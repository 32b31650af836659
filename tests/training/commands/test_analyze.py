"""The analysis command: pictures and numbers of models, from files, folders and data sets."""

import csv

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training.commands import analyze
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
    write_photos(tmp_path / "photos" / "inner", [f"{index}.png" for index in range(3)])
    return tmp_path / "photos"


def test_numbers_are_those_of_the_functions(tmp_path, photos, capsys):
    keras.utils.set_random_seed(0)
    model = small()
    model.save(tmp_path / "model.keras")
    output = tmp_path / "analysis"
    arguments = [str(tmp_path), "--images", str(photos), "--output", str(output), "--shown=2"]
    assert analyze.main(arguments) == 0
    names = ("filters", "position_similarity", "rollout", "attention_distance")
    assert sorted(path.name for path in output.iterdir()) == sorted(
        f"{name}.{kind}" for name in names for kind in ("csv", "png")
    )
    for name in names:
        assert (output / f"{name}.png").read_bytes().startswith(b"\x89PNG")

    similarity = keras_vit.analysis.position_similarity(model)
    rows = read(output / "position_similarity.csv")
    assert len(rows) == 24 * 24
    values = np.array([float(row["similarity"]) for row in rows]).reshape(4, 6, 4, 6)
    np.testing.assert_allclose(values, similarity, atol=1e-5)
    rows = read(output / "rollout.csv")
    assert [int(row["image"]) for row in rows[::24]] == [0, 1, 2]
    maps = np.array([float(row["attention"]) for row in rows]).reshape(3, 4, 6)
    np.testing.assert_array_equal(maps.max(axis=(1, 2)), 1)
    assert len(read(output / "attention_distance.csv")) == 2 * 2
    explained = [float(row["explained"]) for row in read(output / "filters.csv")]
    expected = keras_vit.analysis.embedding_filters(model).explained
    np.testing.assert_allclose(explained, expected, rtol=1e-5)


def test_images_are_prepared_as_the_model_wants_them(tmp_path):
    photos = tmp_path / "photos"
    write_photos(photos, ["a.png", "b.png"], lambda number: noise(number, (40, 60, 3)))
    maps = []
    for name, preprocessing in (
        ("whole", None),
        ("crop", "decode|resize_small(32)|central_crop([16,24])|value_range(-1,1)"),
    ):
        keras.utils.set_random_seed(0)
        model = small()
        model.preprocessing = preprocessing
        model.save(tmp_path / f"{name}.keras")
        arguments = [str(tmp_path / f"{name}.keras"), "--images", str(photos)]
        assert analyze.main([*arguments, f"--output={tmp_path / name}"]) == 0
        maps.append((tmp_path / name / "rollout.csv").read_text())
    assert maps[0] != maps[1]


def test_images_of_a_data_set_and_what_a_model_lacks(data_dir, tmp_path, capsys):
    model = small(attention="axial", classifier="gap", position_embedding="none", num_layers=1)
    model.save(tmp_path / "axial.keras")
    arguments = [str(tmp_path / "axial.keras"), "--dataset=digits", "--count=2"]
    arguments += [f"--data_dir={data_dir}", f"--output={tmp_path / 'analysis'}"]
    assert analyze.main(arguments) == 0
    said = capsys.readouterr().out
    assert "Without rollout: axial attention" in said
    assert "Without position_similarity" in said
    assert sorted(path.name for path in (tmp_path / "analysis").iterdir()) == [
        "filters.csv",
        "filters.png",
    ]


def test_a_masked_model_shows_its_predictions(tmp_path, photos):
    masked = keras_vit.MaskedPatchPrediction(small(num_classes=None))
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npz"], "--model"),
        (["missing.npz", "--model=ViT-Ti/16"], "missing.npz"),
        (["MODEL", "--images", "missing.jpg"], "missing.jpg"),
        (["MODEL", "--images", "EMPTY"], "Received: none"),
        (["MODEL", "--images", "BROKEN"], "cannot be read as an image"),
        (["MODEL", "--count=0"], "--count"),
        (["MODEL", "--images", "BROKEN", "--split=test"], "either --images"),
        (["MODEL", "--image_size=9"], "for a checkpoint alone"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(tmp_path, capsys, arguments, message):
    small().save(tmp_path / "model.keras")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    places = {"MODEL": "model.keras", "EMPTY": "empty", "BROKEN": "broken.jpg"}
    arguments = [str(tmp_path / places[a]) if a in places else a for a in arguments]
    assert analyze.main([*arguments, f"--output={tmp_path / 'analysis'}"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "analysis").exists()
