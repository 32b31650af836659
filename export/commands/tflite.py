"""`python -m export tflite SOURCE`: a TFLite file for phones, or one for each quantization.

Writes a model as a TFLite (LiteRT) file, all of whose operations XNNPACK runs.

  python -m export tflite runs/quickstart --output=digits.tflite --quantization=int8
  python -m export tflite runs/quickstart --output=tflite/ --all
"""

from export.command_options import ExportParser
from export.tflite.quantization import CALIBRATED, QUANTIZATIONS
from training.command_options import list_of
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = ExportParser("python -m export tflite", __doc__)
    parser.add_model()
    parser.add_output("file to write; with --all a directory")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="dynamic")
    parser.add_argument("--all", action="store_true", help="every quantization, and a table")
    parser.add_argument(
        "--batch_sizes",
        metavar="N,N",
        type=list_of(int),
        default=(),
        help="further signatures, such as 4,8",
    )
    parser.add_argument(
        "--image_sizes",
        metavar="PIXELS,PIXELS",
        type=list_of(int),
        default=(),
        help="further signatures for other square images, such as 288,384",
    )
    parser.add_argument(
        "--feature_vector", action="store_true", help="add a signature for the representation"
    )
    parser.add_calibration()
    parser.add_labels()
    parser.add_images()
    return parser


def _export(options):
    import_tensorflow()
    from export.command_steps import (
        calibration,
        class_names,
        images,
        load_source,
        verify_written,
        write_json,
    )
    from export.tflite.to_tflite import to_tflite_files
    from export.verification.verify import verify

    source = load_source(options)
    files = {options.quantization: options.output}
    if options.all:
        files = {name: options.output / f"{name}.tflite" for name in QUANTIZATIONS}
        # Before the work of an export that could not be compared.
        samples = images(options, source)
    calibrated = not set(CALIBRATED).isdisjoint(files)
    to_tflite_files(
        source.model,
        files,
        calibration=calibration(options, source) if calibrated else None,
        labels=class_names(options, source),
        batch_sizes=options.batch_sizes,
        image_sizes=options.image_sizes,
        feature_vector=options.feature_vector,
        activation=source.activation,
    )
    if not options.all:
        return verify_written(options, source, options.output)
    reports = [verify(source.model, file, *samples) for file in files.values()]
    _table(reports).show()
    write_json(options.json, [report.to_dict() for report in reports])
    return 0 if all(report.ok for report in reports) else 1


def _table(reports):
    """Returns the table to choose a quantization by."""
    from training.reporting.table import Table

    rows = [
        (
            report.kind,
            f"{report.size_bytes / 2**20:.2f}",
            *(f"{latency:.2f}" for latency in report.latency_ms.values()),
            f"{report.peak_memory_bytes / 2**20:.0f}",
            f"{report.max_error:.1e}",
            f"{report.relative_error:.4f}",
            _percent(report.agreement),
            _percent(report.artifact_accuracy),
            f"{sum(report.operations_outside_delegate.values())}",
            "good" if report.ok else "; ".join(report.failures),
        )
        for report in reports
    ]
    columns = (
        "quantization",
        "MiB",
        *(f"ms, {threads} thread(s)" for threads in reports[0].latency_ms),
        "peak MiB",
        "largest error",
        "RMSE / deviation",
        "agreement %",
        "accuracy %",
        "ops outside XNNPACK",
        "result",
    )
    return Table(columns, rows, "TFLite files")


def _percent(part):
    return "-" if part is None else f"{100 * part:.2f}"


main = command_main(_parser, _export)
