"""Studies of many small runs: training the cells, scoring them, and keeping the scores."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from training.io.atomic import write_text
from training.reporting.table import Table

STUDIES = ("position", "head", "shape", "axial", "data_size")
SHOTS = 5
SCORES = "scores.json"


@dataclasses.dataclass(frozen=True)
class Score:
    """What is known of one cell and seed after its run.

    Attributes:
        cell: name.
        seed: of the run.
        few_shot: linear accuracy from `SHOTS` images per class, mean over three choices of them.
        top1: accuracy on the evaluation split with the weights that were scored.
        images: images in the training split.
        parameters: of the model, without its head.
        gmacs: 10^9 multiply-accumulates per image, by the paper's convention.
        exaflops: of the whole run.
        images_per_second: of inference on this machine.
    """

    cell: str
    seed: int
    few_shot: float
    top1: float
    images: int
    parameters: int
    gmacs: float
    exaflops: float
    images_per_second: float


def study_module(name: str):
    """Returns the module `training.configs.ablation_NAME`, which holds a study's cells."""
    if name not in STUDIES:
        raise ValueError(f"Expected a study, one of {', '.join(STUDIES)}. Received: {name!r}.")
    return importlib.import_module(f"training.configs.ablation_{name}")


def finish_config(config, study, seed: int):
    """Returns a complete config of a cell after the user's changes, for one seed.

    The warm-up is at most a tenth of the run, and a study that looks at a run's course gets its
    evaluations.
    """
    from training import config_keys
    from training.data import random_access

    config = config_keys.complete(config)
    config.seed = seed
    source = random_access.open_source(config.dataset, config.train_split, config.data_dir)
    config_keys.derive_steps(config, source.num_examples)
    config.optimizer.warmup_steps = min(
        config.optimizer.warmup_steps, config.optimizer.total_steps // 10
    )
    if not config.eval_every_steps and hasattr(study, "EVALUATIONS"):
        config.eval_every_steps = max(config.total_steps // study.EVALUATIONS, 1)
    return config


def run_cell(cell: str, config, workdir, few_shot_task, *, early_stopping: bool = False) -> Score:
    """Trains one cell unless it has finished, and returns its score.

    Args:
        cell: name.
        config: from `finish_config`.
        workdir: run directory; what is there of the same run is used.
        few_shot_task: (data set, train split, test split).
        early_stopping: whether the weights of the best evaluation are scored instead of the last.
    """
    from training.protocols import sweep

    workdir = pathlib.Path(workdir)
    result = sweep.train_run(config, workdir)
    if result.diverged:
        raise ValueError(f"The cell {cell} diverged: {result.diverged}")
    file = workdir / SCORES
    if file.exists():
        return Score(**json.loads(file.read_text()))
    score = _score(cell, config, workdir, few_shot_task, early_stopping)
    write_text(file, json.dumps(dataclasses.asdict(score), indent=2) + "\n")
    return score


def _score(cell, config, workdir, few_shot_task, early_stopping):
    import keras

    import keras_vit
    from training.data import random_access
    from training.evaluators import few_shot, least_squares, speed
    from training.io.model_source import describe

    accuracies = [accuracy for _, accuracy in learning_curve(workdir)]
    model = keras.saving.load_model(
        workdir / ("best.keras" if early_stopping else "model.keras"), compile=False
    )
    found = few_shot.evaluate(
        describe(model, cell, identified=False),
        few_shot.Task(*few_shot_task),
        preprocess=config.eval_preprocess,
        data_dir=config.data_dir or None,
        shots=[SHOTS],
    )
    ((mean, _),) = least_squares.mean_accuracies(found).values()
    source = random_access.open_source(config.dataset, config.train_split, config.data_dir)
    counted = keras_vit.costs(model)
    head = counted.by_type.get("head")
    return Score(
        cell=cell,
        seed=config.seed,
        few_shot=mean,
        top1=max(accuracies) if early_stopping else accuracies[-1],
        images=source.num_examples,
        parameters=counted.parameters - (head.parameters if head else 0),
        gmacs=counted.macs / 1e9,
        exaflops=counted.exaflops(config.total_steps * config.batch_size),
        images_per_second=speed.images_per_second(model, batch_size=64),
    )


def learning_curve(workdir) -> list[tuple[int, float]]:
    """Returns (step, top-1 accuracy) of every evaluation in a run's `metrics.csv`."""
    with (pathlib.Path(workdir) / "metrics.csv").open(newline="") as stream:
        return [
            (int(row["step"]), float(row["eval_top1"]))
            for row in csv.DictReader(stream)
            if row["eval_top1"]
        ]


def run_study(
    name: str,
    configs: dict,
    workdir,
    few_shot_task,
    *,
    seeds: Sequence[int] = (0,),
    say: Callable[[str], None] = print,
) -> list[Score]:
    """Runs every cell with every seed, or what is left of it after an interruption.

    Args:
        name: of the study.
        configs: {cell: config}, the user's changes applied.
        workdir: gets a run directory CELL/seed_SEED for each.
        few_shot_task: (data set, train split, test split).
        seeds: of each cell.
        say: is told what happens.
    """
    study = study_module(name)
    early_stopping = getattr(study, "EARLY_STOPPING", False)
    scores = []
    for number, (cell, config) in enumerate(configs.items(), 1):
        for seed in seeds:
            complete = finish_config(config.copy_and_resolve_references(), study, seed)
            score = run_cell(
                cell,
                complete,
                pathlib.Path(workdir) / cell / f"seed_{seed}",
                few_shot_task,
                early_stopping=early_stopping,
            )
            scores.append(score)
            say(
                f"{number}/{len(configs)} {cell}, seed {seed}: {SHOTS}-shot "
                f"{100 * score.few_shot:.2f} %, top-1 {100 * score.top1:.2f} %"
            )
    return scores


def by_cell(scores: Sequence[Score], field: str) -> dict[str, tuple[float, float]]:
    """Returns {cell: (mean, sample standard deviation)} of a field over the seeds."""
    values: dict[str, list[float]] = {}
    for score in scores:
        values.setdefault(score.cell, []).append(getattr(score, field))
    return {
        cell: (float(np.mean(some)), float(np.std(some, ddof=1)) if len(some) > 1 else 0.0)
        for cell, some in values.items()
    }


def summary(title: str, scores: Sequence[Score], paper: dict | None = None) -> Table:
    """Returns the table of a study, a row for each cell, with the paper's accuracies if given."""
    shots, top1 = by_cell(scores, "few_shot"), by_cell(scores, "top1")
    rows = []
    for score in {score.cell: score for score in scores}.values():
        row = [
            score.cell,
            f"{score.parameters / 1e6:.2f}",
            f"{1000 * score.gmacs:.1f}",
            f"{100 * shots[score.cell][0]:.2f} ± {100 * shots[score.cell][1]:.2f}",
            f"{100 * top1[score.cell][0]:.2f} ± {100 * top1[score.cell][1]:.2f}",
        ]
        rows.append(row + ([f"{100 * paper[score.cell]:.2f}"] if paper else []))
    columns = ["cell", "M parameters", "M MACs", f"{SHOTS}-shot %", "top-1 %"]
    return Table(columns + (["paper %"] if paper else []), rows, title)


def every_score(scores: Sequence[Score]) -> Table:
    """Returns all scores with all fields, one row for each run."""
    names = [field.name for field in dataclasses.fields(Score)]
    return Table(names, [[getattr(score, name) for name in names] for score in scores])
