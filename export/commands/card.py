"""The texts that publish a module: TF-Hub's documentation page and Kaggle's metadata.

It verifies the artifact first.

  keras-vit export card modules/digits --against=RUN --handle=me/digits/1 --license=mit \\
      --output=out
"""

import argparse

from keras_vit.training.command_line.options import CommandParser
from keras_vit.training.io.paths import any_path

from ..command_line import options as shared


def add_options(parser: CommandParser) -> None:
    shared.add_artifact(parser, "directory of a module, or .tflite file")
    text = "directory for the module's .md and Kaggle's two .json files"
    parser.add_path("--output", text, required=True)
    text = "the name that the module is published under"
    parser.add_argument("--handle", metavar="PUBLISHER/MODEL/VERSION", required=True, help=text)
    text = "of the weights, as an SPDX identifier"
    parser.add_argument("--license", metavar="NAME", required=True, help=text)


def run(options: argparse.Namespace) -> int:
    export = shared.opened(options)
    from keras_vit.training.reporting.collect_run_results import figures_of
    from keras_vit.training.reporting.metrics_csv import read_metrics

    from ..model_card import require_handle, write_card

    source = export.source
    require_handle(options.handle)  # before the work of verifying
    metrics = source.run and any_path(options.source) / "metrics.csv"
    figures = figures_of(read_metrics(metrics), source.run) if metrics and metrics.exists() else {}
    report = export.verify(options.artifact)
    files = write_card(
        source.model,
        report,
        options.handle,
        options.output,
        license=options.license,
        dataset=source.run.get("dataset", ""),
        training=figures,
    )
    export.write_json(report.to_dict())
    print("\n".join(f"wrote {file}" for file in files))
    return 0
