import json
import pathlib
import shutil
import signal
import sys
from unittest import mock

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from etils import epath

from keras_vit.__main__ import main
from keras_vit.predict_photos import most_probable
from keras_vit.training.data.preprocessing.preprocess import read_images
from keras_vit.training.errors import TrainingError
from keras_vit.training.inference.open_model import open_source
from keras_vit.training.io.locks import lock
from keras_vit.training.prediction.predictor import Predictor
from keras_vit.training.prediction.shards import Worker, write_shard
from tests.training.runs import contents

# `predict`, killed in the middle of writing its third shard.
KILLED = """
import os, signal, sys
import pyarrow.parquet
from keras_vit.__main__ import main
write_table, written = pyarrow.parquet.write_table, []

def half(table, file):
    write_table(table, file)
    written.append(file)
    if len(written) == 3:
        os.truncate(file, os.path.getsize(file) // 2)
        os.kill(os.getpid(), signal.SIGKILL)

pyarrow.parquet.write_table = half
sys.exit(main(["predict", *sys.argv[1:]]))
"""
SHARD = "predictions-00000-of-00001.parquet"


def rows(folder):
    files = sorted(file for file in folder.iterdir() if file.suffix == ".parquet")
    tables = [pyarrow.BufferReader(file.read_bytes()) for file in files]
    return [row for each in tables for row in pyarrow.parquet.read_table(each).to_pylist()]


def test_shards_say_what_predictions_say(bird_model, photos, tmp_path, capsys, printed):
    options = [str(bird_model), str(photos), f"--shards={tmp_path / 'out'}", "--shard_size=4"]
    options += ["--top=2", "--representation"]
    assert main(["predict", *options]) == 0
    captured = capsys.readouterr()
    assert "4 written" in captured.out and "2 images cannot be read" in captured.err
    found = rows(tmp_path / "out")
    assert [row["id"] for row in found] == [str(photos / f"{number:x}.png") for number in range(16)]
    for number, row in enumerate(found):
        readable = number not in (3, 5)
        assert (row["error"] is None) == readable
        assert all((row[key] is None) != readable for key in ("classes", "representation"))
    model = open_source(bird_model)
    good = [row for row in found if row["error"] is None]
    images = read_images([pathlib.Path(row["id"]) for row in good], model.interface.preprocessing)
    logits = model(images)
    with pytest.raises(ValueError, match="Expected one row of logits for an image"):
        most_probable(logits[None], "softmax", 2)
    for row, classes, values in zip(good, *most_probable(logits, "softmax", 2), strict=True):
        assert row["classes"] == classes.tolist()
        np.testing.assert_allclose(row["probabilities"], values, rtol=1e-5)
        assert [model.interface.class_names[number] for number in classes] == row["names"]
    found = [row["representation"] for row in good]
    np.testing.assert_allclose(found, model.features(images), rtol=1e-4, atol=1e-6)

    before = contents(tmp_path / "out")  # The same command writes what is missing, and that alone.
    (tmp_path / "out" / "predictions-00001-of-00004.parquet").unlink()
    stamps = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()}
    assert "1 written" in printed("predict", *options)
    assert {file: file.stat().st_mtime_ns for file in stamps} == stamps
    assert contents(tmp_path / "out") == before


@pytest.mark.long
def test_a_killed_process_leaves_whole_shards(bird_model, photos, tmp_path, launch):
    def options(folder):
        return [str(bird_model), str(photos), f"--shards={folder}", "--shard_size=2"]

    assert launch("-c", KILLED, *options(tmp_path / "killed")).wait() == -signal.SIGKILL
    whole = [file.name for file in (tmp_path / "killed").glob("predictions-*")]
    assert sorted(whole) == [f"predictions-0000{k}-of-00008.parquet" for k in range(2)]
    assert len(list((tmp_path / "killed").glob(".*.unfinished"))) == 1
    for folder in ("killed", "whole"):
        assert main(["predict", *options(tmp_path / folder)]) == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_photos_that_are_replaced_meanwhile_are_noticed(bird_model, photos, tmp_path):
    own = shutil.copytree(photos, tmp_path / "photos")
    predictor = Predictor(str(bird_model), [str(own / f"{n}.png") for n in (0, 1)], shard_size=1)
    shutil.copy(own / "2.png", own / "1.png")
    first, second = predictor.shards
    assert write_shard(predictor, str(tmp_path), first) == 0
    with pytest.raises(TrainingError, match=r"1\.png was replaced while images were read"):
        write_shard(predictor, str(tmp_path), second)
    assert [file.name for file in tmp_path.glob("*.parquet")] == [first]


def test_another_job_is_refused(bird_model, photos, tmp_path, capsys, refused):
    options = [str(bird_model), str(photos / "0.png"), f"--shards={tmp_path / 'out'}"]
    assert main(["predict", *options]) == 0
    manifest = json.loads((tmp_path / "out" / "_predictions.json").read_text())
    keys = "model preprocess class_names images count top shard_size representation"
    assert sorted(manifest) == sorted(keys.split())
    model = open_source(bird_model)
    assert manifest["model"] == model.identity
    assert manifest["preprocess"] == model.interface.preprocessing
    (tmp_path / "labels.txt").write_text("one\ntwo\nthree\n")
    changes = ["--top=1", "--shard_size=7", "--representation", f"--labels={tmp_path}/labels.txt"]
    assert main(["predict", *options[:2], str(photos / "1.png"), options[2], *changes]) == 2
    names = "class_names, count, images, representation, shard_size, top"
    assert f"predictions with another {names}. Name" in capsys.readouterr().err
    (tmp_path / "out" / "_predictions.json").write_text("[")
    assert "_predictions.json is damaged" in refused("predict", *options)
    (tmp_path / "out" / "_predictions.json").unlink()
    assert "which says what they are of. It is gone" in refused("predict", *options)
    with lock(tmp_path / "out"):
        assert main(["predict", *options]) == 2
    assert "is in use by process" in capsys.readouterr().err


@pytest.mark.long
def test_photos_model_and_shards_in_a_store(bird_model, photos, ram, tmp_path, capsys, printed):
    bucket = epath.Path(ram())
    for folder in ("photos/a", "photos/b"):
        (bucket / folder).mkdir(parents=True)
    for number in range(5):
        place = bucket / "photos" / ("a" if number % 2 else "b") / f"{number}.png"
        place.write_bytes((photos / f"{number}.png").read_bytes())
    (bucket / "m.keras").write_bytes(bird_model.read_bytes())
    options = [f"{bucket}/m.keras", f"{bucket}/photos", f"--shards={bucket}/out", "--shard_size=2"]
    assert "3 written" in printed("predict", *options)
    found = rows(bucket / "out")
    names = ["a/1", "a/3", "b/0", "b/2", "b/4"]
    assert [row["id"] for row in found] == [f"{bucket}/photos/{name}.png" for name in names]
    assert [bool(row["error"]) for row in found] == [False, True, False, False, False]
    local = [str(photos / f"{name[-1]}.png") for name in names]
    assert main(["predict", str(bird_model), *local, f"--shards={tmp_path}/out", options[3]]) == 0
    for one, other in zip(found, rows(tmp_path / "out"), strict=True):
        assert one["probabilities"] == other["probabilities"]
    capsys.readouterr()
    assert "0 written" in printed("predict", *options)
    assert main(["predict", options[0], f"{bucket}/nothing", options[2]]) == 2
    assert "Expected an image or a folder of images" in capsys.readouterr().err


def test_a_split_in_a_store(bird_model, ram, data_dir, failing_store):
    folder = epath.Path(ram()) / "out"
    names, shard = failing_store.names, "predictions-00001-of-00003.parquet"
    # Half of a shard arrives at first, and is sent again.
    failing_store.fails = lambda number: names[-1] == shard and names.count(shard) == 1
    options = ["--dataset=digits", "--split=test[:10]", f"--data_dir={data_dir}", "--shard_size=4"]
    assert main(["predict", str(bird_model), *options, f"--shards={folder}"]) == 0
    assert names.count(shard) == 2
    found = rows(folder)
    assert len(found) == len({row["id"] for row in found}) == 10
    assert found[9]["id"].startswith("sklearn_digits-test.tfrecord") and not found[9]["error"]


def test_a_silent_store_is_no_bad_photo(bird_model, photos, tmp_path, monkeypatch, failing_store):
    error = tf.errors.UnavailableError(None, None, "connection reset")
    predictor = Predictor(str(bird_model), [str(photos / "0.png")])
    monkeypatch.setattr(predictor, "_load", mock.Mock(side_effect=error))
    monkeypatch.setattr(predictor, "_readable", lambda *_: iter(()))
    with pytest.raises(TrainingError, match=r"0\.png cannot be read in 5 attempts: connection res"):
        write_shard(predictor, str(tmp_path / "out"), SHARD)
    assert predictor._load.call_count == 5 and not (tmp_path / "out").exists()


def test_no_ray_and_a_worker_that_sees_others(bird_model, photos, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    options = [f"--shards={tmp_path / 'ray'}", "--cluster=local"]
    assert "pip install 'keras-vit-16x16[ray]'" in refused("predict", bird_model, photos, *options)

    def answer(photo, **changes):
        predictor = Predictor(str(bird_model), [str(photo)])
        manifest = predictor.manifest | changes
        worker = Worker(predictor.arguments, manifest, str(tmp_path / "out"), str(tmp_path))
        return worker({"name": SHARD})

    found = answer(photos / "nothing.png")
    assert found["bad_use"] and "nothing.png here" in found["error"]
    found = answer(photos / "0.png", model="another")
    assert found["bad_use"] and "['model'] are not" in found["error"]
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        assert answer(photos / "3.png") == {"unreadable": 1, "error": "", "bad_use": False}
        (tmp_path / "out" / SHARD).unlink()
