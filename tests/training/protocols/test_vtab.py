import dataclasses
import json
import re
import signal
import time
import zlib

import numpy as np
import pytest
from etils import epath

from keras_vit.__main__ import main
from keras_vit.training import paper_tables
from keras_vit.training.data.sets import known_datasets
from keras_vit.training.io.atomic import atomic_file
from keras_vit.training.paper_tables import TABLE_2, TABLE_9, VTAB_TASKS, MeanDeviation
from keras_vit.training.protocols import vtab
from tests.training.data.helpers import write_set
from tests.training.runs import read_csv

TASKS = {"dtd": "3.0.1", "oxford_flowers102": "2.1.1"}  # The versions in TFDS.


def test_means_of_table_9_and_deviations_of_the_means_of_runs():
    for key, expected in (
        (("ViT-H/14", "jft"), [86.69, 87.00, 65.03, 77.63]),
        (("ViT-L/16", "jft"), [85.56, 86.72, 62.96, 76.29]),
        (("ViT-L/16", "imagenet21k"), [83.27, 84.65, 57.50, 72.71]),
    ):
        means = vtab.aggregate({task: [value] for task, value in TABLE_9[key].items()})
        found = [means[name].mean for name in ("Natural", "Specialized", "Structured", vtab.ALL)]
        assert found == pytest.approx(expected, abs=0.0051)
        assert found[-1] == pytest.approx(TABLE_2[key]["vtab"][0], abs=0.011)
    accuracies = {task: [50.0, 52.0, 54.0] for task in VTAB_TASKS}
    # A task that varies the other way cancels.
    accuracies["Caltech101"], accuracies["Pets"] = [54.0, 52.0, 50.0], [54.0, 52.0, 50.0]
    means = vtab.aggregate(accuracies)
    assert means["Specialized"].deviation == pytest.approx(2.0)
    assert means["Natural"].deviation == pytest.approx(2.0 * 3 / 7)
    assert means[vtab.ALL] == pytest.approx((52.0, 2.0 * 15 / 19))
    # The deviation is the sample one, and one run has none.
    result = MeanDeviation.of([0.80, 0.81, 0.82])
    assert result == pytest.approx((0.81, 0.01)) and str(result.percent) == "81.00 ± 1.00"
    assert str(MeanDeviation.of([0.5, 0.5]).percent) == "50.00 ± 0.00"
    assert MeanDeviation.of([0.5]) == (0.5, None)
    assert str(MeanDeviation.of([0.5]).percent) == "50.00"


def test_table_and_figure_show_the_paper_beside_and_count_absent_tasks():
    accuracies = {task: [1.0, 2.0] for task in VTAB_TASKS if task != "DMLab"}
    table = vtab.comparison("ours", accuracies)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["Caltech101"] == ("1.50 ± 0.71", "95.3", "95.4", "90.8")
    assert rows["DMLab"] == ("–", "53.1", "49.7", "41.9")
    assert rows["Structured mean"] == ("1.50 ± 0.71 (7 of 8)", "65.03", "62.96", "57.50")
    assert rows[vtab.ALL][1:] == ("77.63 ± 0.23", "76.28 ± 0.46", "72.72 ± 0.21")
    assert len(rows) == 23
    rows = {row[0]: row[1] for row in vtab.comparison("few", {"Pets": [90.0], "SVHN": [80.0]}).rows}
    assert (rows["Natural mean"], rows["Specialized mean"]) == ("85.00 (2 of 7)", "–")
    assert rows[vtab.ALL] == "85.00 (2 of 19)"
    assert "| Caltech101 | 1.50 ± 0.71 | 95.3 | 95.4 | 90.8 |" in table.markdown()
    # The figure pales what is not whole, and its legend covers no bar.
    figure = vtab.group_figure("ours", {task: [50.0] for task in accuracies})
    (axes,) = figure.axes
    ours = axes.patches[:4]
    assert [bar.get_alpha() for bar in ours] == [1.0, 1.0, 0.4, 0.4]
    assert [bar.get_height() for bar in ours] == [50.0] * 4
    figure.draw_without_rendering()
    (legend,) = figure.legends or [axes.get_legend()]
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y1


def test_tables_are_those_that_were_compared_with_the_paper_cell_by_cell():
    names = sorted(name for name in vars(paper_tables) if name.startswith("TABLE_"))
    text = repr([getattr(paper_tables, name) for name in names])
    assert zlib.crc32(text.encode()) == 3759768018


@pytest.fixture(scope="module")
def vtab_dir(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("vtab"), np.random.default_rng(0)
    for name, version in TASKS.items():
        # Few of the classes, so that a short run learns something.
        colors, splits = rng.integers(0, 256, (3, 3)), {}
        row = known_datasets.row(f"vtab/{name}")
        for split, size in row.sizes.items():
            labels = np.arange(size) % 3
            pixels = colors[labels, None, None] + rng.integers(-100, 101, (size, 4, 4, 3))
            splits[split] = zip(pixels.clip(0, 255), labels.tolist(), strict=True)
        write_set(name, folder, row.num_classes, splits, version=version)
    return folder


@pytest.fixture
def arguments(vit, vtab_dir, tmp_path):
    vit.save(tmp_path / "m.keras")
    options = [f"--data_dir={vtab_dir}", f"--tasks={','.join(TASKS)}", "--seeds=3", "--rates=0.1"]
    options += ["--image_size=8", "--steps=24", "--config.batch_size=8"]
    options += ["--config.eval_batch_size=512", "--config.checkpoint_every_steps=8"]
    options += ["--config.model.dropout_rate=0.1"]
    return lambda workdir: [f"{tmp_path}/m.keras", f"--workdir={workdir}", *options]


@pytest.mark.long
def test_a_killed_run_gives_the_table_of_an_uninterrupted_one(arguments, launch, tmp_path):
    whole = launch("-m", "training", "vtab", *arguments(tmp_path / "whole"))
    killed = tmp_path / "killed"
    first = launch("-m", "training", "vtab", *arguments(killed))
    # In the middle of the second task's run, with a checkpoint; the first task is done.
    interrupted = killed / "oxford_flowers102" / "test" / "seed_3"
    while not list((interrupted / "checkpoints").glob("checkpoint-*")):
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.02)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    finished = killed / "dtd" / "test" / "seed_3" / "result.json"
    before = finished.stat().st_mtime_ns
    assert not (interrupted / "result.json").exists()
    assert "(1 of 19)" in (killed / "vtab.md").read_text()

    for process in (whole, launch("-m", "training", "vtab", *arguments(killed))):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    assert finished.stat().st_mtime_ns == before
    for name in ("vtab.csv", "vtab.md"):
        assert (killed / name).read_text() == (tmp_path / "whole" / name).read_text()
    for task in TASKS:
        names = [(run / task / "examples.txt").read_text() for run in (killed, tmp_path / "whole")]
        assert names[0] == names[1] and names[0].count("\n") == 1000

    rows = read_csv(killed / "vtab.csv")
    found = [(row["task"], row["seed"], row["images"]) for row in rows]
    assert found == [("DTD", "3", "1880"), ("Flowers102", "3", "6149")]
    accuracies = np.array([float(row["accuracy"]) for row in rows])
    assert accuracies.min() > 0.4
    mean = f"| VTAB (19 tasks) | {100 * accuracies.mean():.2f} (2 of 19) |"
    assert mean in (killed / "vtab.md").read_text()
    assert "(2 of 19)" in output and "not comparable" in output


@pytest.mark.long
def test_model_and_runs_in_a_store(arguments, vit, ram, capsys):
    bucket = epath.Path(ram())
    with atomic_file(bucket / "m.keras") as file:
        vit.save(file)
    options = [f"{bucket}/m.keras", *arguments(bucket / "vtab")[1:], "--tasks=dtd", "--steps=4"]
    assert main(["vtab", *options]) == 0
    run = bucket / "vtab" / "dtd" / "test" / "seed_3"
    assert json.loads((run / "config.json").read_text())["checkpoint"] == f"{bucket}/m.keras"
    assert (bucket / "vtab" / "dtd" / "examples.txt").read_text().count("\n") == 1000
    assert (bucket / "vtab" / "vtab.png").exists()
    # A local copy of the model would make another config of it.
    written = (run / "result.json").stat().mtime
    table = (bucket / "vtab" / "vtab.md").read_text()
    assert main(["vtab", *options]) == 0 and (run / "result.json").stat().mtime == written
    assert (bucket / "vtab" / "vtab.md").read_text() == table


def test_missing_data_is_listed_before_anything_runs(vit, tmp_path, monkeypatch, refused):
    black = [(np.zeros((4, 4, 3)), 0)]  # One example in each split of both tasks.
    for name, version in TASKS.items():
        row = known_datasets.row(f"vtab/{name}")
        write_set(name, tmp_path, row.num_classes, dict.fromkeys(row.sizes, black), version=version)
        small = dataclasses.replace(row, sizes=dict.fromkeys(row.sizes, 1))
        monkeypatch.setitem(known_datasets.DATASETS, f"vtab/{name}", small)
    vit.save(tmp_path / "m.keras")
    options = [f"{tmp_path}/m.keras", f"--data_dir={tmp_path}", f"--workdir={tmp_path / 'run'}"]
    error = refused("vtab", *options)
    assert "The data of 17 of 19 tasks is missing" in error
    assert error.count("keras-vit data prepare") + error.count("by hand") >= 17
    assert "DTD:" not in error and "Pets:" in error
    # By either name, in the order of Table 9.
    error = refused("vtab", *options, "--tasks=smallnorb_elevation,Pets,cifar100")
    titles = re.findall(r"^(?!error)(\S+): ", error, re.MULTILINE)
    assert titles == ["CIFAR-100", "Pets", "sNORB-Elev"]
    for wrong, message in (
        (["--tasks=Pets", "--skip_missing"], "No task is left"),
        (["--tasks=Pets,MNIST"], ", smallnorb_elevation. Received: MNIST"),
        (["--tasks=dtd", "--config.batchsize=3"], "Did you mean batch_size?"),
    ):
        assert message in refused("vtab", *options, *wrong)
    assert not (tmp_path / "run").exists()
