"""Studies of many small runs: training the cells, scoring them, and showing the scores."""

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from ml_collections import ConfigDict

from keras_vit.analysis import costs

from ..config import schema
from ..configs.ablation import STUDIES, Study
from ..data import Dataset
from ..errors import Diverged, UsageError
from ..evaluators import few_shot
from ..evaluators.speed import images_per_second
from ..inference.image_function import KerasFunction
from ..inference.open_model import load_model
from ..io.printed_table import Table
from ..io.remote_stores import local_file
from ..paper_tables import MeanDeviation
from ..reporting.matplotlib_figures import new_figure
from ..reporting.metrics_csv import read_metrics
from ..source_facts import read_run_config
from ..tasks import compared_by, task_of
from .train_unless_finished import computed_once, require_last_update, same_weights, train_run

logger = logging.getLogger("keras_vit")

SHOTS = 5
SCORES = "scores.json"


@dataclasses.dataclass(frozen=True)
class Score:
    """The results of one cell and seed."""

    cell: str
    seed: int
    few_shot: float  # linear, from `SHOTS` images per class, mean over three choices of them
    accuracy: float  # on the evaluation split with the weights that were scored
    images: int  # in the training split
    parameters: int  # of the model, without its head
    gmacs: float  # 10^9 multiply-accumulates per image, by the paper's convention
    exaflops: float  # of the whole run
    images_per_second: float  # of inference on this machine


def run_study(
    study: Study,
    configs: Mapping[str, ConfigDict],
    workdir: pathlib.Path,
    datasets: Mapping[str, Dataset],
    few_shot_task: few_shot.FewShotTask,
    *,
    seeds: Sequence[int] = (0,),
) -> list[Score]:
    """Runs every cell with every seed; after an interruption, the rest.

    `configs` are {cell: config}, the user's changes applied, and `datasets` {name: data set}, open,
    of all of them. `workdir` gets a run directory CELL/seed_SEED for each. Raises `Diverged` if a
    cell does.
    """
    scores = []
    with same_weights(next(iter(configs.values())).checkpoint):
        for number, (cell, config) in enumerate(configs.items(), 1):
            for seed in seeds:
                run, dataset = _run_of_cell(workdir, cell, seed), datasets[config.dataset]
                score = _run_cell(study, cell, config, seed, run, dataset, few_shot_task)
                scores.append(score)
                logger.info(
                    "%d/%d %s, seed %d: %d-shot %.2f %%, top-1 %.2f %%",
                    *(number, len(configs), cell, seed, SHOTS),
                    *(100 * score.few_shot, 100 * score.accuracy),
                )
    return scores


def _run_of_cell(workdir, cell, seed):
    return workdir / cell / f"seed_{seed}"


def learning_curve(run: pathlib.Path) -> list[tuple[int, float]]:
    """Returns (step, top-1 accuracy) of the evaluations of a run on the data that it has now."""
    config = read_run_config(run / "config.json")
    since, column = config["data"].get("accepted_after", 0), task_of(config).main.column
    return [row for row in read_metrics(run / "metrics.csv")[column] if row[0] > since]


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
        found = _score(run / ("best.keras" if best else "model.keras"), config, few_shot_task)
        return {
            "cell": cell,
            "seed": seed,
            "images": num_examples,
            "accuracy": max(accuracies) if best else accuracies[-1],
            **found,
        }

    scored_on = [split.identity for split in few_shot_task]
    return Score(**computed_once(run / SCORES, score, scored_on))


def _finished_config(config, study, seed, num_examples):
    """Returns a complete config of a cell after the user's changes, for one seed.

    The warm-up is at most a tenth of the run, and a study that looks at a run's course gets its
    evaluations.
    """
    config = schema.complete(config)
    require_last_update(config)
    main = task_of(config).main
    if study.early_stopping and compared_by(config) != main:
        raise UsageError(
            f"Expected --config.early_stopping.metric={main.column}: this study scores the weights "
            f"of the best {main.title}. Received: {config.early_stopping.metric}."
        )
    config.seed = seed
    # The length of the run is derived first: a short run refuses the usual warm-up.
    warmup, config.optimizer.warmup_steps = config.optimizer.warmup_steps, 0
    schema.derive_steps(config, num_examples)
    config.optimizer.warmup_steps = min(warmup, config.optimizer.total_steps // 10)
    if not config.eval_every_steps and study.evaluations:
        config.eval_every_steps = max(config.total_steps // study.evaluations, 1)
    return config


def _score(file, config, few_shot_task):
    """Returns the fields of a `Score` that are measured on a trained model."""
    with local_file(file) as copy:
        model = load_model(copy).model
    found = few_shot.evaluate(
        KerasFunction(model, identified=False),
        few_shot_task,
        preprocess=config.eval_preprocess,
        shots=[SHOTS],
    )
    ((mean, _),) = few_shot.mean_accuracies(found).values()
    counted = costs(model)
    head = counted.by_type.get("head")
    return {
        "few_shot": mean,
        "parameters": counted.parameters - (head.parameters if head else 0),
        "gmacs": counted.macs / 1e9,
        "exaflops": counted.exaflops(config.total_steps * config.batch_size),
        "images_per_second": images_per_second(model, batch_size=64),
    }


def _by_cell(scores: Sequence[Score], field: str) -> dict[str, MeanDeviation]:
    """Returns {cell: mean and deviation over the seeds} of a field of `Score`."""
    values: dict[str, list[float]] = {}
    for score in scores:
        values.setdefault(score.cell, []).append(getattr(score, field))
    return {cell: MeanDeviation.of(of_seeds) for cell, of_seeds in values.items()}


def study_table(
    title: str, scores: Sequence[Score], paper: Mapping[str, float] | None = None
) -> Table:
    """Returns the table of a study: a row for each cell.

    `paper` is {cell: the paper's accuracy in percent}, shown beside if given.
    """
    shots, accuracies = _by_cell(scores, "few_shot"), _by_cell(scores, "accuracy")
    columns = ["cell", "M parameters", "M MACs", f"{SHOTS}-shot %", "top-1 %"]
    rows = []
    for cell, score in {score.cell: score for score in scores}.items():
        sizes = f"{score.parameters / 1e6:.2f}", f"{1000 * score.gmacs:.1f}"
        row = [cell, *sizes, str(shots[cell].percent), str(accuracies[cell].percent)]
        rows.append(row + ([f"{paper[cell]:.2f}"] if paper else []))
    return Table(columns + (["paper %"] if paper else []), rows, title)


def every_score(scores: Sequence[Score]) -> Table:
    """Returns all scores with all fields, one row for each run."""
    names = [field.name for field in dataclasses.fields(Score)]
    return Table(names, [dataclasses.astuple(score) for score in scores])


_SHOTS = f"{SHOTS}-shot linear accuracy (%)"
# {study: [(field on the x axis, its label, field on the y axis, its label)]}
_PANELS = {
    "shape": [("gmacs", "GMACs per image", "few_shot", _SHOTS)],
    "axial": [
        ("exaflops", "compute of training (exaFLOPs)", "few_shot", _SHOTS),
        ("images_per_second", "inference (images/s)", "few_shot", _SHOTS),
    ],
    "data_size": [
        ("images", "training images", "accuracy", "best top-1 on held-out images (%)"),
        ("images", "training images", "few_shot", _SHOTS),
    ],
}
# {study: function of a cell that returns the line it lies on}
_LINE_OF = {
    "shape": lambda cell: cell.partition("_")[0],
    "axial": str,
    "data_size": lambda cell: cell.rpartition("_")[0],
}


def study_figure(study: str, scores: Sequence[Score], workdir: pathlib.Path) -> Figure:
    """Returns the figure of the study of that name; `workdir` holds its runs."""
    draw = {"position": _position, "head": _head}.get(study, _lines)
    figure = draw(study, scores, workdir)
    figure.suptitle(STUDIES[study].title, fontsize=10)
    return figure


def _position(study, scores, workdir):
    """Draws our accuracies beside the paper's."""
    paper, cells = STUDIES[study].paper, _by_cell(scores, "few_shot")
    figure, (ours, theirs) = new_figure(2)
    places = range(len(cells))
    means, deviations = zip(*map(_height, cells.values()), strict=True)
    ours.bar(places, means, yerr=deviations, capsize=3)
    ours.set_title("this run", fontsize=9)
    theirs.bar(places, [paper[cell] for cell in cells], color="tab:gray")
    theirs.set_title("paper: ViT-B/16 from JFT, 5-shot ImageNet", fontsize=9)
    for axis in (ours, theirs):
        axis.set_xticks(places, list(cells), rotation=45, ha="right", fontsize=8)
        heights = [bar.get_height() for bar in axis.patches]
        axis.set(ylabel=_SHOTS, ylim=(max(0, min(heights) - 5), max(heights) + 3))
    return figure


def _head(study, scores, workdir):
    """Draws the accuracy of every run over its steps; the seeds of a cell share a color."""
    figure, (axis,) = new_figure()
    colors: dict[str, str] = {}
    for score in scores:
        label = None if score.cell in colors else score.cell
        color = colors.setdefault(score.cell, f"C{len(colors)}")
        curve = learning_curve(_run_of_cell(workdir, score.cell, score.seed))
        steps, accuracies = zip(*curve, strict=True)
        axis.plot(steps, [100 * each for each in accuracies], "o-", color=color, label=label)
    axis.set(xlabel="step", ylabel="top-1 accuracy (%)")
    axis.legend(fontsize=8)
    return figure


def _lines(study, scores, workdir):
    """Joins the cells of each line in order of x, on a logarithmic axis."""
    figure, axes = new_figure(len(_PANELS[study]))
    for axis, (x, xlabel, y, ylabel) in zip(axes, _PANELS[study], strict=True):
        places, heights = _by_cell(scores, x), _by_cell(scores, y)
        points = {cell: (places[cell].mean, *_height(heights[cell])) for cell in heights}
        base = [points.pop("base")] if "base" in points else []
        lines: dict[str, list] = {}
        for cell, point in points.items():
            lines.setdefault(_LINE_OF[study](cell), [*base]).append(point)
        for line, joined in lines.items():
            at, values, deviations = zip(*sorted(joined), strict=True)
            style = {"fmt": "o-", "markersize": 4, "capsize": 2, "label": line}
            axis.errorbar(at, values, yerr=deviations, **style)
        axis.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
        axis.legend(fontsize=8)
    return figure


def _height(accuracy):
    """Returns (mean, length of the error bar) in percent."""
    mean, deviation = accuracy.percent
    return mean, deviation or 0.0
