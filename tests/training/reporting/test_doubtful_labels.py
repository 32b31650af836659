import json
import shutil

import numpy as np
import pytest

from keras_vit.training.configs import own_photos
from keras_vit.training.loop import trainer
from keras_vit.training.reporting.doubtful_labels import FILE, kept_doubts
from tests.training.data.helpers import write_photos

CLASSES = ("crow", "finch", "robin", "wren")
PLANTED = {"crow": "finch/crow_3.jpg", "finch": "robin/finch_9.jpg"}
PLANTED |= {"robin": "wren/robin_21.jpg", "wren": "crow/wren_30.jpg"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on 160 photos, of which four lie in the next class, and one is none."""
    folder = tmp_path_factory.mktemp("mistakes")
    names = [f"{name}/{name}_{number}.jpg" for name in CLASSES for number in range(40)]
    rng = np.random.default_rng(0)

    def pixels(number):
        # A square of each class's color, anywhere on noise of any brightness.
        image = rng.integers(0, 150, (36, 48, 3)) + rng.integers(0, 60)
        top, left = rng.integers(0, 16), rng.integers(0, 28)
        colors = [(30, 40, 60), (240, 210, 30), (220, 60, 30), (120, 90, 60)]
        color = colors[number // 40] + rng.integers(-25, 25, 3)
        image[top : top + 20, left : left + 20] = color.clip(0, 255)
        return image

    write_photos(folder / "photos", names, pixels)
    for name, place in PLANTED.items():
        shutil.move(folder / "photos" / name / place.partition("/")[2], folder / "photos" / place)
    (folder / "photos/wren/wren_1.jpg").write_bytes(b"none")
    config = own_photos.get_config(f"{folder / 'photos'},size=24,steps=120")
    config.model.update(hidden_size=32, mlp_dim=64, num_layers=2, patch_size=6)
    config.update(eval_every_steps=120, log_every_steps=60)
    trainer.train(config, folder / "run")
    return folder / "run"


@pytest.mark.long
def test_planted_mistakes_are_the_first_and_are_on_the_page(run, printed, refused):
    rows = json.loads(printed("predict", run, "--mistakes", "--json"))
    first = [row["file"] for row in rows[:6]]
    assert {*PLANTED.values()} <= {*first}, first
    for row in rows:
        if row["file"] in PLANTED.values():
            assert row["folder"] == row["file"].partition("/")[0]
            assert row["prediction"] == row["file"].partition("/")[2].partition("_")[0]
    found = kept_doubts(run)
    assert (found["step"], found["times"], found["scores"].shape) == (120, 2, (159, 4))
    assert [*found["unreadable"]] == ["wren/wren_1.jpg"]
    doubts = [row["doubt"] for row in rows]
    assert doubts == sorted(doubts, reverse=True)
    held_out = [
        photo
        for photo, trained in zip(found["doubt_photos"], found["doubt_trained"], strict=True)
        if not trained
    ]
    lines = printed("predict", run, "--mistakes", "--csv").splitlines()
    assert lines[0] == "file,folder,prediction,doubt,trained on"
    assert [line.split(",")[0] for line in lines[1:] if line.endswith(",no")] == held_out
    page = (run / "report.html").read_text()
    assert f"{first[0]}: in " in page and "1 could not be read: wren/wren_1.jpg." in page
    assert f"{len(rows)} of 159 photos look like another class" in page and FILE not in page
    assert "Expected a run alone" in refused("predict", run, "photo.jpg", "--mistakes")
