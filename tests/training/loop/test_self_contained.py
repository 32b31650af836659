"""A run says all of itself when the folder it was trained on is gone."""

import json
import shutil

import numpy as np
import pytest

from keras_vit.export.__main__ import main as export_main
from keras_vit.training.commands import predict, report
from keras_vit.training.evaluators.exported_files import labels_of
from keras_vit.training.evaluators.model_from_source import load_model
from keras_vit.training.loop import trainer
from tests.training.data.helpers import write_photos

NAMES = ["crow", "great tit", "finch of the far north"]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 3)):
        write_photos(
            tmp_path / "photos" / split,
            [f"{name}/{number}.png" for name in sorted(NAMES) for number in range(count)],
            lambda place, count=count: rng.integers(0, 40, (20, 24, 3)) + 100 * (place // count),
        )
    return tmp_path / "photos"


@pytest.mark.long
def test_a_run_whose_folder_is_gone(folder, tiny, tmp_path, capsys):
    run, photo = tmp_path / "run", tmp_path / "photo.png"
    config = tiny(
        dataset=f"folder:{folder}",
        eval_split="test",
        total_steps=8,
        eval_every_steps=4,
        mixup_p=0.0,
        report=True,
    )
    trainer.train(config, run)
    shutil.copy(next((folder / "test" / "crow").iterdir()), photo)
    first = (run / "report.html").read_text()
    shutil.rmtree(folder)

    for source in (run, run / "best.keras"):
        assert load_model(source).class_names == sorted(NAMES)
        assert load_model(source).preprocess == config.eval_preprocess
        assert predict.main([str(source), str(photo), "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert {each["class"] for each in found["classes"]} == set(NAMES)

    module = run / "module"
    assert export_main(["hub", str(run), f"--output={module}"]) == 0
    assert "not verified: Expected a folder of images" in capsys.readouterr().out
    assert labels_of(module) == sorted(NAMES)

    (run / "page.html").write_text("<p>Names &amp; birds")
    assert report.main([str(run)]) == 0
    again = (run / "report.html").read_text()
    assert 'href="page.html">page.html</a>' in again
    assert 'href="module/"' in again and 'href="module/"' not in first
    # The rest is as it was, images included.
    start, end = 'id="classes"', 'id="files"'
    assert (
        again[again.index(start) : again.index(end)] == first[first.index(start) : first.index(end)]
    )
    capsys.readouterr()
    (run / "evaluation.npz").write_bytes((run / "evaluation.npz").read_bytes()[:100])
    assert report.main([str(run)]) == 2
    assert "evaluation.npz is damaged: " in capsys.readouterr().err
    (run / "evaluation.npz").unlink()
    assert report.main([str(run)]) == 2
    assert "does not exist" in capsys.readouterr().err
