"""The report of a finished run, from the files in its directory."""

import json
import os
import pathlib

import numpy as np

from keras_vit.errors import damage_named

from ..data import Dataset, open_data_of_run
from ..data.sets.known_datasets import OF_PHOTOS
from ..data.sets.splits import HELD_OUT_FIFTH
from ..data.skip_unreadable import counter_for
from ..data.tf_data_batches import eval_dataset
from ..inference.open_model import load_model
from ..io.atomic import atomic_file, write_text
from ..io.progress_bar import track
from ..source_facts import read_run_config, runs_inside, unfinished
from ..tasks import COUNT, LOSS, compared_by, task_of
from .doubtful_labels import FILE as LABELS
from .doubtful_labels import doubt_section, kept_doubts
from .html_pages import report_html
from .metrics_csv import read_metrics

# Enough for a picture; accuracies come from `metrics.csv`, where every image counts.
MAX_IMAGES = 2000
BATCH = 32
# Keeps what the page shows of the evaluation split, so that it can be drawn without the images.
EVALUATION = "evaluation.npz"
_LINKED = (".keras", ".tflite", ".npz", ".csv", ".gz", ".html")
_NO_EXPORTS = ("checkpoints", "tensorboard", "assets", "variables")


def report_run(
    run: str | os.PathLike, *, dataset: Dataset | None = None, data_dir: str | None = None
) -> pathlib.Path:
    """Writes `report.html` into a run directory and returns its path.

    `dataset` is the run's, where it is open already, and `data_dir` where its data is now; None is
    where the run found it. Raises `FileNotFoundError` if `run` holds no finished run, or its data
    is gone and no page was drawn before.
    """
    run = pathlib.Path(run)
    absent = [n for n in ("config.json", "metrics.csv", "model.keras") if not (run / n).exists()]
    if absent:
        begun = "config.json" not in absent
        advice = f"a run unfinished {unfinished(run)}." if begun else f"no run{runs_inside(run)}."
        raise FileNotFoundError(
            f"Expected the directory of a finished run. Received: {run}, without "
            f"{', '.join(absent)}; it is {advice}"
        )
    config = read_run_config(run / "config.json")
    config["data_dir"] = data_dir or config["data_dir"]
    series, source = read_metrics(run / "metrics.csv"), load_model(run)
    count, sections = _evaluated(run, source, config, dataset) if config["eval_split"] else (0, [])
    doubts, classes = kept_doubts(run), source.interface.class_names
    sections += [doubt_section(doubts, classes)] if doubts and classes else []
    tiles = figures_of(series, config)
    del config["data"]
    page = report_html(
        title=f"{run.resolve().name}: {_short_name(config['dataset'])}",
        subtitle=_subtitle(series, config, count),
        series=series,
        tiles=tiles,
        config=json.dumps(config, indent=2, sort_keys=True),
        sections=sections,
        files=_files(run),
    )
    write_text(run / "report.html", page)
    return run / "report.html"


def _evaluated(run, source, config, dataset):
    """Returns what the page shows of the evaluation split, kept for when its data is gone.

    Of data that changed since, it would be of other images than the figures above it.
    """
    file = run / EVALUATION
    try:
        opened = dataset or open_data_of_run(run, config)
        if file.exists() and not dataset and opened.changes[str(run)]:
            results = kept_evaluation(file)
        else:
            results = _results(source, config, opened)
            with atomic_file(file) as temporary, temporary.open("wb") as stream:
                np.savez_compressed(stream, **results)
    except FileNotFoundError:
        if not file.exists():
            raise
        results = kept_evaluation(file)
    return task_of(config).page_content(results, source.interface.class_names)


def kept_evaluation(file: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of `EVALUATION`; raises ValueError if the file is damaged."""
    advice = "It is written again where the evaluation split is: name its folder with --data_dir."
    with damage_named(f"{file} is damaged", advice), np.load(file) as kept:
        arrays = dict(kept)
    return arrays


def _results(source, config, dataset):
    """Returns the arrays of `EVALUATION`, of the first `MAX_IMAGES`."""
    split = dataset.split(config["eval_split"])
    preprocess = split.preprocess(config["eval_preprocess"])
    batch_size = min(config["eval_batch_size"], BATCH)
    skipped = counter_for(config["on_error"])
    task = task_of(config)
    batches = eval_dataset(
        split, preprocess, batch_size=batch_size, skip_counter=skipped, task=task
    )
    count = -(-min(MAX_IMAGES, split.num_examples) // batch_size)
    shown = track(batches.take(count), "drawing report.html", count)
    return task.page_arrays(source, shown, dataset)


def _files(run):
    """Returns the paths of what a run and its exports wrote; folders end with a /."""
    found = []
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run)
        if any(part.startswith(".") or part in _NO_EXPORTS for part in name.parts[:-1]):
            continue
        if path.name == "saved_model.pb":
            found.append(f"{name.parent.as_posix()}/")
        elif path.suffix in _LINKED and path.name not in (EVALUATION, LABELS, "report.html"):
            found.append(name.as_posix())
    return found


def _short_name(dataset):
    """Returns the name of a data set; of photos, the last part of their folder or table."""
    kind, _, path = dataset.partition(":")
    return pathlib.PurePath(path).name or dataset if f"{kind}:" in OF_PHOTOS else dataset


def _last_step(series):
    return max(step for values in series.values() for step, _ in values)


def _subtitle(series, config, count):
    model = config["model"]["name"] or "Vision Transformer"
    text = f"{model}, {_last_step(series)} steps of {config['batch_size']} images."
    if not count:
        return text
    split = config["eval_split"]
    name = "the held-out fifth" if split == HELD_OUT_FIFTH[1] else split
    return f"{text} Tables and examples: {count} images of {name}."


def figures_of(series: dict[str, list[tuple[int, float]]], config: dict) -> dict[str, str]:
    """Returns the figures of a run by their titles, of its metrics.csv and config.json.

    They say of which step the model is, and how many images nobody could measure.
    """
    last = {name: values[-1][1] for name, values in series.items()}
    # Evaluations before other data was accepted are of other images.
    since = config["data"].get("accepted_after", 0)
    series = {name: [row for row in rows if row[0] > since] for name, rows in series.items()}
    tiles = {}
    if series.get(COUNT):
        main = task_of(config).main
        values = {step: main.text(value) for step, value in series[main.column]}
        last_step, handed_over = series[main.column][-1][0], step_of_model(series, config)
        tiles[main.title] = values[handed_over]
        shares, count = dict(series[main.column]), int(last[COUNT])
        if margin := main.margin(shares[handed_over], count):
            tiles["95 % interval"] = margin
        tiles["images evaluated"] = f"{count:,}"
        if left := max((config["data"].get("eval") or {}).get("examples", 0) - count, 0):
            tiles["left out, unreadable or without label"] = f"{left:,}"
        tiles["step of the model"] = f"{handed_over:,}"
        for name, step in (("best", _best_step(series, main)), ("last", last_step)):
            if step != handed_over:
                tiles[f"{name} {main.title}, at step {step:,}"] = values[step]
    if "loss" in last:
        tiles["training loss"] = f"{last['loss']:.4f}"
    tiles["steps"] = f"{_last_step(series):,} of {config['total_steps']:,}"
    return tiles


def step_of_model(series: dict[str, list[tuple[int, float]]], config: dict) -> int:
    """Returns the step of the evaluation of `model.keras`, from those of the data of now."""
    best = config["hand_over"] == "best"
    return _best_step(series, compared_by(config)) if best else series[COUNT][-1][0]


def _best_step(series, metric):
    losses = dict(series[LOSS.column])
    # As `BestEvaluation` compares them.
    return max(series[metric.column], key=lambda row: (metric.score(row[1]), -losses[row[0]]))[0]
