"""`keras-vit budget`: what the paper's experiments cost to run.

Prints the floating-point operations of the paper's pre-training and transfer runs, counted by its
convention (forward and backward, two operations per multiply-accumulate), and the hours that
they take at a rate that you know your hardware to sustain.

  keras-vit budget --teraflops=100
"""

import argparse
from collections.abc import Sequence

from .. import paper_tables
from ..command_line.options import CommandParser, above_0, list_of
from ..data.sets import known_datasets
from ..io.printed_table import Table
from ..io.quiet_start import import_tensorflow

_TITLES = {
    "imagenet2012": "ImageNet",
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "oxford_iiit_pet": "Pets",
    "oxford_flowers102": "Flowers",
}
RUNS = 3


def add_options(parser: CommandParser) -> None:
    text = "10^12 operations per second that training sustains, on all devices together"
    parser.add_argument("--teraflops", type=above_0, default=100.0, help=text)
    models = ["ViT-B/32", "ViT-B/16", "ViT-L/32", "ViT-L/16", "ViT-H/14"]
    text = "names, separated by commas"
    parser.add_argument("--models", type=list_of(str), default=models, help=text)


def run(options: argparse.Namespace) -> None:
    import_tensorflow()
    print(experiment_table(options.models, options.teraflops).markdown(), end="")


def experiment_table(models: Sequence[str], teraflops: float) -> Table:
    """Returns a row for every experiment: its runs, exaFLOPs and hours for each model.

    A model that Table 3 does not pre-train on a data set is shown as "–". `teraflops` are 10^12
    operations per second that training sustains.
    """
    rows = []
    for upstream, title in paper_tables.UPSTREAM.items():
        cells = [_pre_training(model, upstream, teraflops) for model in models]
        rows.append((f"pre-train on {title}", 1, *cells))
    for name, row in paper_tables.TABLE_4.items():
        if name == "vtab":
            title, runs = "fine-tune on VTAB", len(paper_tables.VTAB_TASKS) * RUNS
        else:
            title, runs = f"sweep {_TITLES[name]}", len(row.base_lrs) + RUNS
        images = runs * row.steps * paper_tables.TABLE_4_BATCH_SIZE
        size = paper_tables.TABLE_4_IMAGE_SIZE
        rows.append((title, runs, *(_cell(model, size, images, teraflops) for model in models)))
    columns = ("experiment", "runs", *models)
    return Table(columns, rows, f"ExaFLOPs (hours at {teraflops:g} TFLOP/s)")


def _pre_training(model, upstream, teraflops):
    try:
        _, epochs = paper_tables.row_of_table_3(model, upstream)
    except ValueError:
        return "–"
    stated = paper_tables.UPSTREAM_IMAGES.get(upstream)
    images = stated or known_datasets.row(upstream).num_examples("train")
    return _cell(model, paper_tables.TABLE_3_IMAGE_SIZE, epochs * images, teraflops)


def _cell(model, size, images, teraflops):
    from keras_vit.analysis import costs

    exaflops = costs(model, image_size=size).exaflops(images)
    hours = exaflops * 1e18 / (teraflops * 1e12) / 3600
    # Three significant digits, without an exponent.
    return "{:,.12g} ({:,.12g} h)".format(*(float(f"{each:.3g}") for each in (exaflops, hours)))
