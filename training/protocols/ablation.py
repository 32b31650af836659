"""Studies of many small runs: training the cells, scoring them, and keeping the scores."""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from keras_vit.training.configs.ablation import Study
from keras_vit.training.data import Dataset
from keras_vit.training.errors import Diverged
from keras_vit.training.evaluators.mean_deviation import MeanDeviation
from keras_vit.training.io.printed_table import Table
from keras_vit.training.protocols.run_result import computed_once, train_run
from keras_vit.training.reporting.metrics_csv import read_metrics

if TYPE_CHECKING:
    from keras_vit.training.evaluators.few_shot import Task

logger = logging.getLogger("keras_vit")

SHOTS = 5
SCORES = "scores.json"


@dataclasses.dataclass(frozen=True)
class Score:
    """The results of one cell and seed.

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


def run_study(
    study: Study,
    configs: Mapping[str, ConfigDict],
    workdir: pathlib.Path,
    datasets: Mapping[str, Dataset],
    few_shot_task: "Task",
    *,
    seeds: Sequence[int] = (0,),
) -> list[Score]:
    """Runs every cell with every seed, or what is left of it after an interruption.

    Args:
        study: whose cells they are.
        configs: {cell: config}, the user's changes applied.
        workdir: gets a run directory CELL/seed_SEED for each.
        datasets: {name: data set}, open, of all configs.
        few_shot_task: of `training.evaluators.few_shot`.
        seeds: of each cell.

    Raises:
        Diverged: if a cell does.
    """
    scores = []
    for number, (cell, config) in enumerate(configs.items(), 1):
        for seed in seeds:
            run, dataset = run_of_cell(workdir, cell, seed), datasets[config.dataset]
            score = _run_cell(study, cell, config, seed, run, dataset, few_shot_task)
            scores.append(score)
            logger.info(
                "%d/%d %s, seed %d: %d-shot %.2f %%, top-1 %.2f %%",
                *(number, len(configs), cell, seed, SHOTS),
                *(100 * score.few_shot, 100 * score.top1),
            )
    return scores


def run_of_cell(workdir: pathlib.Path, cell: str, seed: int) -> pathlib.Path:
    """Returns the run directory of a cell and seed."""
    return workdir / cell / f"seed_{seed}"


def learning_curve(run: pathlib.Path) -> list[tuple[int, float]]:
    """Returns (step, top-1 accuracy) of every evaluation in a run's `metrics.csv`."""
    return read_metrics(run / "metrics.csv")["eval_top1"]


def _run_cell(study, cell, config, seed, run, dataset, few_shot_task):
    """Trains one cell unless it has finished, and returns its score."""
    num_examples = dataset.split(config.train_split).num_examples
    config = _finished_config(config, study, seed, num_examples)
    result = train_run(config, run, dataset)
    if result.diverged:
        raise Diverged(f"The cell {cell} diverged: {result.diverged}")

    def score():
        accuracies = [accuracy for _, accuracy in learning_curve(run)]
        best = study.early_stopping
        return {
            "cell": cell,
            "seed": seed,
            "images": num_examples,
            "top1": max(accuracies) if best else accuracies[-1],
            **_score(run / ("best.keras" if best else "model.keras"), config, few_shot_task),
        }

    return Score(**computed_once(run / SCORES, score))


def _finished_config(config, study, seed, num_examples):
    """Returns a complete config of a cell after the user's changes, for one seed.

    The warm-up is at most a tenth of the run, and a study that looks at a run's course gets its
    evaluations.
    """
    from keras_vit.training.config import schema

    config = schema.complete(config)
    config.seed = seed
    # The length of the run is derived first: a short run refuses the usual warm-up.
    warmup, config.optimizer.warmup_steps = config.optimizer.warmup_steps, 0
    schema.derive_steps(config, num_examples)
    config.optimizer.warmup_steps = min(warmup, config.optimizer.total_steps // 10)
    if not config.eval_every_steps and study.evaluations:
        config.eval_every_steps = max(config.total_steps // study.evaluations, 1)
    return config


def _score(file, config, few_shot_task):
    """Returns what is measured of a trained model itself."""
    import keras_vit
    from keras_vit.training.evaluators import few_shot, least_squares, speed
    from keras_vit.training.evaluators.evaluated_model import freeze
    from keras_vit.training.evaluators.model_from_source import load_model
    from keras_vit.training.io.stores import local_file

    with local_file(file) as copy:
        model = load_model(copy).model
    found = few_shot.evaluate(
        freeze(model, model.name, identified=False),
        few_shot_task,
        preprocess=config.eval_preprocess,
        shots=[SHOTS],
    )
    ((mean, _),) = least_squares.mean_accuracies(found).values()
    counted = keras_vit.costs(model)
    head = counted.by_type.get("head")
    return {
        "few_shot": mean,
        "parameters": counted.parameters - (head.parameters if head else 0),
        "gmacs": counted.macs / 1e9,
        "exaflops": counted.exaflops(config.total_steps * config.batch_size),
        "images_per_second": speed.images_per_second(model, batch_size=64),
    }


def by_cell(scores: Sequence[Score], field: str) -> dict[str, MeanDeviation]:
    """Returns {cell: mean and deviation over the seeds} of a field of `Score`."""
    values: dict[str, list[float]] = {}
    for score in scores:
        values.setdefault(score.cell, []).append(getattr(score, field))
    return {cell: MeanDeviation.of(of_seeds) for cell, of_seeds in values.items()}


def study_table(
    title: str, scores: Sequence[Score], paper: Mapping[str, float] | None = None
) -> Table:
    """Returns the table of a study: a row for each cell.

    Args:
        title: of the table.
        scores: of all cells and seeds.
        paper: {cell: the paper's accuracy in percent}, shown beside if given.
    """
    shots, top1 = by_cell(scores, "few_shot"), by_cell(scores, "top1")
    rows = []
    for cell, score in {score.cell: score for score in scores}.items():
        row = [
            cell,
            f"{score.parameters / 1e6:.2f}",
            f"{1000 * score.gmacs:.1f}",
            str(shots[cell].percent),
            str(top1[cell].percent),
        ]
        rows.append(row + ([f"{paper[cell]:.2f}"] if paper else []))
    columns = ["cell", "M parameters", "M MACs", f"{SHOTS}-shot %", "top-1 %"]
    return Table(columns + (["paper %"] if paper else []), rows, title)


def every_score(scores: Sequence[Score]) -> Table:
    """Returns all scores with all fields, one row for each run."""
    names = [field.name for field in dataclasses.fields(Score)]
    return Table(names, [[getattr(score, name) for name in names] for score in scores])
