"""`keras-vit export card ARTIFACT --against=SOURCE`: the texts that publish a module.

Verifies an artifact and writes TF-Hub's documentation page and Kaggle's metadata for it.

  keras-vit export card modules/digits --against=runs/quickstart --handle=me/digits/1 --output=out
"""

from keras_vit.export.command_line import Export, export_command


def _options(parser):
    parser.add_argument("--handle", required=True, metavar="PUBLISHER/MODEL/VERSION")
    parser.add_argument("--license", default="apache-2.0")


@export_command(
    artifact="directory of a module, or .tflite file",
    output="directory for the module's .md and Kaggle's two .json files",
    options=_options,
)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    from keras_vit.export.model_card import require_handle, write_card

    options = export.options
    require_handle(options.handle)  # before the work of verifying
    report = export.verify(options.artifact)
    files = write_card(
        export.source.model,
        report,
        options.handle,
        options.output,
        license=options.license,
        config=export.source.run,
    )
    export.write_json(report.to_dict())
    print("\n".join(f"wrote {file}" for file in files))
    return 0
