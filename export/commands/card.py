"""`python -m export card ARTIFACT --against=SOURCE`: the texts that publish a module.

Verifies an artifact and writes TF-Hub's documentation page and Kaggle's metadata for it.

  python -m export card modules/digits --against=runs/quickstart --handle=me/digits/1 --output=out
"""

from export.command_options import ExportParser
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = ExportParser("python -m export card", __doc__)
    parser.add_artifact("directory of a module, or .tflite file")
    parser.add_output("directory for the module's .md and Kaggle's two .json files")
    parser.add_argument("--handle", required=True, metavar="PUBLISHER/MODEL/VERSION")
    parser.add_argument("--license", default="apache-2.0")
    parser.add_images()
    return parser


def _write(options):
    import_tensorflow()
    from export.command_steps import images, load_source, write_json
    from export.model_card import Handle, write_card
    from export.portable_model import portable
    from export.verification.verify import verify

    handle = Handle.parse(options.handle)
    source = load_source(options)
    report = verify(source.model, options.artifact, *images(options, source))
    files = write_card(
        portable(source.model),
        report,
        handle,
        options.output,
        license=options.license,
        config=source.run,
    )
    write_json(options.json, report.to_dict())
    print("\n".join(f"wrote {file}" for file in files))


main = command_main(_parser, _write)
