"""The report of a finished run, from the files in its directory."""

import json
import os
import pathlib

import numpy as np

from training.io.atomic import write_text
from training.reporting.read_metrics import read_metrics
from training.reporting.report_html import Example, report_html

# Enough for a picture; accuracies come from `metrics.csv`, where every image counts.
MAX_IMAGES = 2000
MAX_EXAMPLES = 18
MAX_MISTAKES = 6


def report_run(run: str | os.PathLike, *, data_dir: str | None = None) -> pathlib.Path:
    """Writes `report.html` into a run directory and returns its path.

    Args:
        run: a directory with `config.json`, `metrics.csv` and `model.keras`.
        data_dir: where the evaluation split is now; None is where the run found it.

    Raises:
        FileNotFoundError: if `run` holds no finished run, or its data is gone.
    """
    run = pathlib.Path(run)
    absent = [n for n in ("config.json", "metrics.csv", "model.keras") if not (run / n).exists()]
    if absent:
        raise FileNotFoundError(
            f"Expected the directory of a finished run. Received: {run}, without "
            f"{', '.join(absent)}; the same command that began a run ends it."
        )
    config = json.loads((run / "config.json").read_text())
    config["data_dir"] = data_dir or config["data_dir"]
    series = read_metrics(run / "metrics.csv")
    evaluated = _evaluated(run, config) if config["eval_split"] else {}
    page = report_html(
        title=f"{run.resolve().name}: {config['dataset']}",
        subtitle=_subtitle(config, evaluated),
        series=series,
        tiles=_tiles(series, config),
        config=json.dumps(config, indent=2, sort_keys=True),
        **evaluated,
    )
    write_text(run / "report.html", page)
    return run / "report.html"


def _evaluated(run, config):
    """Returns what the page shows of the evaluation split."""
    from training.data import dataset_lookup
    from training.io.model_source import load_model

    model = load_model(run).model
    spec = dataset_lookup.get(config["dataset"], config["data_dir"] or None)
    names = spec.class_names or [str(i) for i in range(spec.num_classes)]
    images, labels = _images(config)
    predictions = model.predict(images, batch_size=32, verbose=0).argmax(axis=-1)
    confusion = np.zeros((len(names), len(names)), np.int64)
    np.add.at(confusion, (labels, predictions), 1)
    examples = _examples(model, images, labels, predictions)
    return {"confusion": confusion, "names": names, "examples": examples}


def _images(config):
    from training.data import pipeline

    dataset = pipeline.eval_dataset(
        name=config["dataset"],
        split=config["eval_split"],
        preprocess=config["eval_preprocess"],
        batch_size=min(config["eval_batch_size"], 128),
        data_dir=config["data_dir"] or None,
        on_error=config["on_error"],
    )
    images, labels = [], []
    for batch in dataset:
        real = np.asarray(batch["mask"]) > 0
        images.append(np.asarray(batch["image"])[real])
        labels.append(np.asarray(batch["label"])[real].argmax(axis=-1))
        if sum(map(len, images)) >= MAX_IMAGES:
            break
    return np.concatenate(images)[:MAX_IMAGES], np.concatenate(labels)[:MAX_IMAGES]


def _examples(model, images, labels, predictions):
    wrong = np.flatnonzero(labels != predictions)[:MAX_MISTAKES]
    right = _one_of_each(labels, np.flatnonzero(labels == predictions))
    chosen = np.concatenate([wrong, right])[:MAX_EXAMPLES].astype(int)
    if not len(chosen):
        return []
    attention = _attention(model, images[chosen])
    return [
        Example(
            image=(images[index] + 1) * 127.5,
            label=int(labels[index]),
            prediction=int(predictions[index]),
            attention=None if attention is None else attention[position],
        )
        for position, index in enumerate(chosen)
    ]


def _one_of_each(labels, candidates):
    """Returns the first candidate of every class that has one."""
    _, first = np.unique(labels[candidates], return_index=True)
    return candidates[first]


def _attention(model, images):
    import keras_vit
    from keras_vit.analysis import attention_rollout

    if not isinstance(model, keras_vit.VisionTransformer):
        return None
    if model.arguments["attention"] != "global":
        return None
    return attention_rollout(model, images)


def _subtitle(config, evaluated):
    model = config["model"]["name"] or "Vision Transformer"
    text = f"{model}, {config['total_steps']} steps of {config['batch_size']} images."
    if evaluated:
        shown = evaluated["confusion"].sum()
        text += f" Confusion matrix and examples: {shown} images of {config['eval_split']}."
    return text


def _tiles(series, config):
    last = {name: values[-1][1] for name, values in series.items()}
    tiles = {}
    if "eval_top1" in last:
        tiles["top-1 accuracy"] = f"{100 * last['eval_top1']:.2f} %"
        tiles["images evaluated"] = f"{int(last['eval_count']):,}"
    if "loss" in last:
        tiles["training loss"] = f"{last['loss']:.4f}"
    tiles["steps"] = f"{config['total_steps']:,}"
    return tiles
