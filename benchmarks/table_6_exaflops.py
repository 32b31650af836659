"""Table 6: the compute of the paper's training runs beside ours."""

import argparse

import keras_vit
from benchmarks.harness.command_line import show
from keras_vit.training import paper_tables
from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.io.quiet_start import import_tensorflow


def add_options(parser: CommandParser) -> None:
    pass


def run(options: argparse.Namespace) -> None:
    import_tensorflow()
    rows = []
    for (model, epochs), published in paper_tables.TABLE_6_EXAFLOPS.items():
        counted = keras_vit.costs(model, num_classes=None)
        exaflops = counted.exaflops(epochs * paper_tables.UPSTREAM_IMAGES["jft"])
        rows.append(
            {
                "model": model,
                "epochs": epochs,
                "parameters": f"{counted.parameters / 1e6:.1f}M",
                "GMACs": f"{counted.macs / 1e9:.2f}",
                "executed": f"{counted.executed_macs / 1e9:.2f}",
                "exaFLOPs": f"{exaflops:.1f}",
                "Table 6": published,
                "error": f"{exaflops / published - 1:.2%}",
                "misprint": paper_tables.TABLE_6_MISPRINTS.get((model, epochs), ""),
            }
        )
    show(rows)
