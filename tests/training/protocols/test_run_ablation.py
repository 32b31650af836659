import dataclasses
import json

import pytest
from etils import epath
from ml_collections import ConfigDict

import keras_vit
from keras_vit.__main__ import main
from keras_vit.training.config.overrides import load_config
from keras_vit.training.configs.ablation import PERCENTS, SCALES, STUDIES
from keras_vit.training.data.sets import fingerprint
from keras_vit.training.errors import UsageError
from keras_vit.training.protocols import run_ablation, train_unless_finished
from keras_vit.training.protocols.run_ablation import (
    Score,
    learning_curve,
    study_figure,
    study_table,
)
from tests.training.runs import read_csv

# Cells that train in seconds.
TINY = ["--config.dataset=digits", "--config.total_steps=6", "--config.batch_size=32"]
TINY += ["--config.model.hidden_size=16", "--config.model.mlp_dim=16"]
TINY += ["--config.model.num_layers=1", "--config.model.patch_size=8", "--few_shot_dataset=digits"]


def costs_of(config):
    arguments = {"name": "ViT-B/16", **config.model, "num_classes": None}
    arguments.pop("representation_size", None)
    return keras_vit.costs(arguments.pop("name"), **arguments)


def test_position_and_head_cells_and_an_unknown_one(tmp_path, refused):
    study = STUDIES["position"]
    for scale in SCALES:
        cells = study.cells(scale)
        models = {name: config.model for name, config in cells.items()}
        shown = {(each.position_embedding, each.position_placement) for each in models.values()}
        assert list(cells) == list(study.paper) and len(shown) == 8
        assert models["none"].position_embedding == "none"
        assert models["2d_shared"].position_embedding == "learned_2d"
        assert models["2d_shared"].position_placement == "shared"
    cells = STUDIES["head"].cells("small")
    rates = {name: config.optimizer.base_lr for name, config in cells.items()}
    assert rates["gap_small_rate"] / rates["token"] == pytest.approx(3e-4 / 8e-4)
    assert rates["gap"] == rates["token"]
    assert [config.model.classifier for config in cells.values()] == ["token", "gap", "gap"]
    assert "Received: mean" in refused("ablation", "head", f"--workdir={tmp_path}", "--cells=mean")


def test_axial_shape_and_data_size_cells_and_their_configs():
    cells = STUDIES["axial"].cells("paper")
    macs = [costs_of(cells[name]).macs / 1e9 for name in ("axial_32", "axial_16")]
    assert macs == pytest.approx([8.452, 33.511], abs=1e-3)
    cells = STUDIES["shape"].cells("paper")
    base = costs_of(cells["base"])
    assert base.parameters == 70_400_000 and cells["depth_8"].model.num_layers == 64
    assert costs_of(cells["depth_2"]).macs / base.macs == pytest.approx(2, rel=0.05)
    assert costs_of(cells["patch_2"]).macs > 3.5 * base.macs
    assert cells["patch_2"].model.patch_size == 16
    for config in cells.values():
        assert config.model.hidden_size // config.model.num_heads == 64
        assert config.model.representation_size == config.model.hidden_size
    cells = STUDIES["data_size"].cells("small")  # Those of data sizes nest, and hold images out.
    assert len(cells) == 3 * len(PERCENTS)
    splits = [cells[f"vit_{percent}"].train_split for percent in PERCENTS]
    assert splits == ["train[:2.94%]", "train[:9.8%]", "train[:29.4%]", "train[:98%]"]
    assert {config.eval_split for config in cells.values()} == {"train[98%:]"}
    paper = STUDIES["data_size"].cells("paper")
    assert paper["ViT-b_10"].model.representation_size == 384
    assert "dropout_rate" not in paper["R152x2_100"].model
    assert costs_of(paper["R152x2_100"]).parameters == 232_238_208
    assert load_config("ablation:position/2d_every").model.position_placement == "every"
    paper = load_config("ablation:position/1d_stem, paper")
    assert (paper.model.name, paper.dataset, paper.batch_size) == ("ViT-B/16", "imagenet21k", 4096)
    for wrong, known in (("size/3d", "data_size"), ("position/none,huge", "huge")):
        with pytest.raises(UsageError, match=known):
            load_config(f"ablation:{wrong}")


@pytest.mark.long
def test_a_study_in_a_store_is_trained_scored_drawn_and_resumed(data_dir, ram, capsys):
    study = epath.Path(ram()) / "study"
    arguments = ["head", f"--workdir={study}", "--cells=token,gap", *TINY, f"--data_dir={data_dir}"]
    assert main(["ablation", *arguments]) == 0
    rows = read_csv(study / "results.csv")
    assert [row["cell"] for row in rows] == ["token", "gap"]
    for row in rows:
        assert 0.05 < float(row["few_shot"]) < 1
        run = study / row["cell"] / "seed_0"
        assert json.loads((run / "config.json").read_text())["optimizer"]["warmup_steps"] == 0
        curve = learning_curve(run)
        assert [step for step, _ in curve] == [1, 2, 3, 4, 5, 6]
        assert float(row["accuracy"]) == curve[-1][1] and int(row["images"]) == 1438
        assert not (run / "checkpoints").exists()
    assert (study / "head.png").read_bytes().startswith(b"\x89PNG")
    found = [(study / name).read_text() for name in ("results.md", "results.csv")]
    assert "| token " in found[0]

    models = [study / cell / "seed_0" / "model.keras" for cell in ("token", "gap")]
    times = [model.stat().mtime for model in models]
    capsys.readouterr()
    assert main(["ablation", *arguments]) == 0
    assert [model.stat().mtime for model in models] == times
    assert [(study / name).read_text() for name in ("results.md", "results.csv")] == found
    assert "2/2 gap, seed 0" in capsys.readouterr().err


def test_other_weights_than_those_scored(data_dir, tmp_path, refused):
    for study, override, message in (
        ("head", "hand_over=best", "the last update is scored"),
        ("data_size --cells=b_30", "early_stopping.metric=eval_loss", "the best top-1 accuracy"),
        # Each cell has its own.
        ("head", "optimizer.base_lr=0.1", "Leave out --config.optimizer.base_lr: this protocol"),
        (
            "position",
            "model.position_embedding=none",
            "Leave out --config.model.position_embedding",
        ),
    ):
        folders = [f"--workdir={tmp_path / 'study'}", f"--data_dir={data_dir}"]
        words = [*study.split(), *folders, *TINY, f"--config.{override}"]
        assert message in refused("ablation", *words) and not (tmp_path / "study").exists()


@pytest.mark.long
def test_early_stopping_scores_the_best_weights(data_dir, tmp_path, printed):
    arguments = ["data_size", "--cells=b_30", *TINY]
    arguments += [f"--workdir={tmp_path}", f"--data_dir={data_dir}"]
    table = printed("ablation", *arguments)
    assert printed("ablation", *arguments, "--few_shot_train_split=train[:50]") != table
    run = tmp_path / "b_30" / "seed_0"
    scores = json.loads((run / "scores.json").read_text())
    first, *others = learning_curve(run)
    assert scores["accuracy"] == max(accuracy for _, accuracy in (first, *others))
    # Those before other data was accepted are of other images.
    config = json.loads((run / "config.json").read_text())
    config["data"]["accepted_after"] = first[0]
    (run / "config.json").write_text(json.dumps(config))
    assert learning_curve(run) == others and scores["images"] == 423


def test_all_cells_begin_from_the_same_weights(tmp_path, monkeypatch):
    weights = tmp_path / "weights.npz"
    weights.write_bytes(b"first")
    configs = {cell: ConfigDict({"checkpoint": str(weights), "dataset": "a"}) for cell in "xy"}

    def run(*cell):
        weights.write_bytes(b"second")
        begun.append(train_unless_finished._BEGUN.get())
        return score("x", 0.5)

    begun = [fingerprint.digest_of_checkpoint(str(weights))]
    monkeypatch.setattr(run_ablation, "_run_cell", run)
    run_ablation.run_study(STUDIES["head"], configs, tmp_path, {"a": None}, None)
    assert len(begun) == 3 and len(set(begun)) == 1


def score(cell, few_shot, seed=0, **fields):
    usual = Score(cell, seed, few_shot, 0.5, 100, 1000, 1.0, 1.0, 10.0)
    return dataclasses.replace(usual, **fields)


def test_seeds_are_averaged_and_figures_join_the_cells_of_a_line_in_order():
    scores = [score("a", 0.1), score("a", 0.3, seed=1), score("b", 0.5)]
    first, second = study_table("A study", scores, {"a": 64.206, "b": 60.0}).rows
    assert first[3:] == ["20.00 ± 14.14", "50.00 ± 0.00", "64.21"]
    assert second[3:] == ["50.00", "50.00", "60.00"]

    def lines_of(axis):
        return {each.get_label(): each[0].get_xydata().tolist() for each in axis.containers}

    found = {"base": (0.5, 2), "depth_2": (0.75, 4), "depth_0.5": (0.25, 1), "mlp_2": (0.5, 3)}
    scores = [score(cell, few_shot, gmacs=gmacs) for cell, (few_shot, gmacs) in found.items()]
    (axis,) = study_figure("shape", scores, ".").axes
    assert lines_of(axis) == {"depth": [[1, 25], [2, 50], [4, 75]], "mlp": [[2, 50], [3, 50]]}

    scores = [score("vit_100", 0.5, images=1000, accuracy=0.625)]
    scores += [score("vit_3", 0.25, images=30, accuracy=0.375)]
    scores += [score("resnet_3", 0.125, images=30, accuracy=0.5)]
    held_out, few_shot = study_figure("data_size", scores, ".").axes
    assert lines_of(held_out) == {"vit": [[30, 37.5], [1000, 62.5]], "resnet": [[30, 50]]}
    assert lines_of(few_shot)["vit"] == [[30, 25], [1000, 50]]

    scores = [score("vit_8", 0.25, exaflops=2e-6, images_per_second=500)]
    compute, speed = study_figure("axial", scores, ".").axes
    assert lines_of(compute) == {"vit_8": [[2e-6, 25]]}
    assert lines_of(speed) == {"vit_8": [[500, 25]]}
    scores = [score("none", 0.2), score("1d_stem", 0.4)]  # Our bars beside the paper's.
    ours, theirs = study_figure("position", scores, ".").axes
    assert [bar.get_height() for bar in ours.patches] == pytest.approx([20, 40])
    assert [bar.get_height() for bar in theirs.patches] == pytest.approx([61.382, 64.206])
