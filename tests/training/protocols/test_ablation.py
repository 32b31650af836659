"""The ablation studies: what their cells are, what a run leaves, what the figures show."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from etils import epath

import keras_vit
from keras_vit.training.commands import ablation as command
from keras_vit.training.config.overrides import load_config
from keras_vit.training.configs import ablation_base, ablation_data_size
from keras_vit.training.errors import UsageError
from keras_vit.training.protocols.ablation import (
    Score,
    by_cell,
    find_study,
    learning_curve,
    study_table,
)
from keras_vit.training.protocols.ablation_figures import study_figure

# Cells that train in seconds.
TINY = [
    "--config.dataset=digits",
    "--config.total_steps=6",
    "--config.batch_size=32",
    "--config.model.hidden_size=16",
    "--config.model.mlp_dim=16",
    "--config.model.num_layers=1",
    "--config.model.patch_size=8",
    "--few_shot_dataset=digits",
]


def costs_of(config):
    arguments = config.model.to_dict() | {"num_classes": None}
    arguments.pop("representation_size", None)
    return keras_vit.costs(arguments.pop("name", "") or "ViT-B/16", **arguments)


def score(cell, few_shot, seed=0, **fields):
    usual = Score(cell, seed, few_shot, 0.5, 100, 1000, 1.0, 1.0, 10.0)
    return dataclasses.replace(usual, **fields)


@pytest.mark.parametrize("scale", ablation_base.SCALES)
def test_position_cells_are_those_of_table_8(scale):
    study = find_study("position")
    cells = study.cells(scale)
    assert list(cells) == list(study.paper)
    models = {name: config.model for name, config in cells.items()}
    shown = {(each.position_embedding, each.position_placement) for each in models.values()}
    assert len(shown) == 8 and models["none"].position_embedding == "none"
    assert models["2d_shared"].position_embedding == "learned_2d"
    assert models["2d_shared"].position_placement == "shared"


def test_head_cells_differ_in_pooling_and_rate():
    cells = find_study("head").cells("small")
    rates = {name: config.optimizer.base_lr for name, config in cells.items()}
    assert rates["gap_small_rate"] / rates["token"] == pytest.approx(3e-4 / 8e-4)
    assert rates["gap"] == rates["token"]
    assert [config.model.classifier for config in cells.values()] == ["token", "gap", "gap"]


def test_shape_cells_lie_around_the_papers_base():
    cells = find_study("shape").cells("paper")
    base = costs_of(cells["base"])
    assert base.parameters == 70_400_000
    assert cells["depth_8"].model.num_layers == 64
    relative = {name: costs_of(config).macs / base.macs for name, config in cells.items()}
    assert relative["depth_2"] == pytest.approx(2, rel=0.05)
    assert relative["patch_2"] > 3.5
    assert cells["patch_2"].model.patch_size == 16
    for config in cells.values():
        assert config.model.hidden_size // config.model.num_heads == 64
        assert config.model.representation_size == config.model.hidden_size


def test_axial_cells_are_the_papers_models():
    cells = find_study("axial").cells("paper")
    macs = {name: costs_of(config).macs / 1e9 for name, config in cells.items()}
    assert macs["axial_32"] == pytest.approx(8.452, abs=1e-3)
    assert macs["axial_16"] == pytest.approx(33.511, abs=1e-3)
    small = find_study("axial").cells("small")
    assert small["axial_4"].model.attention == "axial"
    assert small["resnet"].model.name == "BiT-R50x1"


def test_data_size_cells_nest_and_hold_images_out():
    study = find_study("data_size")
    cells = study.cells("small")
    assert len(cells) == 3 * len(ablation_data_size.PERCENTS)
    splits = [cells[f"vit_{percent}"].train_split for percent in ablation_data_size.PERCENTS]
    assert splits == ["train[:2.94%]", "train[:9.8%]", "train[:29.4%]", "train[:98%]"]
    assert {config.eval_split for config in cells.values()} == {"train[98%:]"}
    assert costs_of(cells["b_3"]).parameters < costs_of(cells["vit_3"]).parameters / 3
    paper = study.cells("paper")
    assert paper["ViT-b_10"].model.representation_size == 384
    assert "dropout_rate" not in paper["R152x2_100"].model
    assert costs_of(paper["R152x2_100"]).parameters == 232_238_208


def test_a_cell_is_a_config_of_the_training_command():
    config = load_config("training/configs/ablation_position.py:2d_every")
    assert config.model.position_placement == "every"
    paper = load_config("training/configs/ablation_position.py:1d_stem, paper")
    assert (paper.model.name, paper.dataset, paper.batch_size) == ("ViT-B/16", "imagenet21k", 4096)
    with pytest.raises(UsageError, match="1d_stem"):
        load_config("training/configs/ablation_position.py:3d_stem")
    with pytest.raises(UsageError, match="huge"):
        load_config("training/configs/ablation_position.py:none,huge")


@pytest.mark.long
def test_a_study_is_trained_scored_drawn_and_resumed(tmp_path, capsys):
    arguments = ["head", f"--workdir={tmp_path / 'study'}", "--cells=token,gap", *TINY]
    arguments.append(f"--config.data_dir={tmp_path / 'data'}")
    assert command.main(arguments) == 0
    with (tmp_path / "study" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["cell"] for row in rows] == ["token", "gap"]
    for row in rows:
        assert 0.05 < float(row["few_shot"]) < 1
        run = tmp_path / "study" / row["cell"] / "seed_0"
        config = json.loads((run / "config.json").read_text())
        assert config["optimizer"]["warmup_steps"] == 0
        curve = learning_curve(run)
        assert [step for step, _ in curve] == [1, 2, 3, 4, 5, 6]
        assert float(row["top1"]) == curve[-1][1]
        assert int(row["images"]) == 1438
    image = (tmp_path / "study" / "head.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert "| token " in (tmp_path / "study" / "results.md").read_text()

    models = [tmp_path / "study" / cell / "seed_0" / "model.keras" for cell in ("token", "gap")]
    times = [model.stat().st_mtime_ns for model in models]
    capsys.readouterr()
    assert command.main(arguments) == 0
    assert [model.stat().st_mtime_ns for model in models] == times
    assert "2/2 gap, seed 0" in capsys.readouterr().err


@pytest.mark.long
def test_early_stopping_scores_the_best_weights(tmp_path):
    arguments = ["data_size", f"--workdir={tmp_path / 'study'}", "--cells=b_30", *TINY]
    arguments.append(f"--config.data_dir={tmp_path / 'data'}")
    assert command.main(arguments) == 0
    run = tmp_path / "study" / "b_30" / "seed_0"
    scores = json.loads((run / "scores.json").read_text())
    assert scores["top1"] == max(accuracy for _, accuracy in learning_curve(run))
    assert scores["images"] == 423


@pytest.mark.long
def test_a_study_in_a_store(data_dir, ram):
    address = epath.Path(ram()) / "study"
    arguments = ["head", f"--workdir={address}", "--cells=token", *TINY, f"--data_dir={data_dir}"]
    assert command.main(arguments) == 0
    assert "| token " in (address / "results.md").read_text()
    assert (address / "head.png").read_bytes().startswith(b"\x89PNG")
    run = address / "token" / "seed_0"
    assert [step for step, _ in learning_curve(run)] == [1, 2, 3, 4, 5, 6]
    assert not (run / "checkpoints").exists()
    found = (address / "results.csv").read_text()
    assert command.main(arguments) == 0
    assert (address / "results.csv").read_text() == found


def test_an_unknown_cell_is_named(tmp_path, capsys):
    assert command.main(["head", f"--workdir={tmp_path}", "--cells=mean"]) == 2
    assert "Received: mean" in capsys.readouterr().err


def test_seeds_are_averaged():
    scores = [score("a", 0.1), score("a", 0.3, seed=1), score("b", 0.5)]
    means = by_cell(scores, "few_shot")
    assert means["a"] == pytest.approx((0.2, np.sqrt(0.02)))
    assert means["b"] == (0.5, None)
    table = study_table("A study", scores, {"a": 64.206, "b": 60.0})
    assert table.rows[0][-1] == "64.21"
    assert table.rows[0][3] == "20.00 ± 14.14"


def test_shape_figure_joins_every_line_at_the_base():
    found = {"base": (0.3, 2), "depth_2": (0.4, 4), "depth_0.5": (0.2, 1), "mlp_2": (0.35, 3)}
    scores = [score(cell, few_shot, gmacs=gmacs) for cell, (few_shot, gmacs) in found.items()]
    axis = study_figure("shape", scores, ".").axes[0]
    lines = {container.get_label(): container[0] for container in axis.containers}
    np.testing.assert_allclose(lines["depth"].get_xydata(), [[0.5, 20], [1, 30], [2, 40]])
    np.testing.assert_allclose(lines["mlp"].get_xydata(), [[1, 30], [1.5, 35]])


def test_position_figure_has_our_bars_beside_the_papers():
    scores = [score("none", 0.2), score("1d_stem", 0.4)]
    ours, theirs = study_figure("position", scores, ".").axes
    assert [bar.get_height() for bar in ours.patches] == pytest.approx([20, 40])
    assert [bar.get_height() for bar in theirs.patches] == pytest.approx([61.382, 64.206])


def test_axial_figure_shows_compute_and_speed():
    scores = [score("vit_8", 0.2, exaflops=2e-6, images_per_second=500)]
    compute, speed = study_figure("axial", scores, ".").axes
    assert compute.containers[0][0].get_xydata().tolist() == [[2e-6, 20]]
    assert speed.containers[0][0].get_xydata().tolist() == [[500, 20]]


def test_data_size_figure_has_one_line_for_each_model():
    scores = [
        score("vit_3", 0.2, images=30, top1=0.3),
        score("vit_100", 0.4, images=1000, top1=0.6),
        score("resnet_3", 0.3, images=30, top1=0.4),
    ]
    held_out, _ = study_figure("data_size", scores, ".").axes
    lines = {container.get_label(): container[0] for container in held_out.containers}
    np.testing.assert_allclose(lines["vit"].get_xydata(), [[30, 30], [1000, 60]])
    assert list(lines) == ["vit", "resnet"]
