"""`keras-vit export tflite SOURCE`: a TFLite file for phones, or one for each quantization.

Writes a model as a TFLite (LiteRT) file, all of whose operations XNNPACK runs.

  keras-vit export tflite runs/quickstart --output=digits.tflite --quantization=int8
  keras-vit export tflite runs/quickstart --output=tflite/ --all
"""

from keras_vit.export.command_line import CALIBRATION, LABELS, Export, export_command
from keras_vit.export.tflite.quantization import CALIBRATED, QUANTIZATIONS
from keras_vit.training.command_options import list_of


@export_command(
    "tflite",
    __doc__,
    output="file to write; with --all a directory",
    options={
        "--quantization": {"choices": QUANTIZATIONS, "default": "dynamic"},
        "--all": {"action": "store_true", "help": "every quantization, and a table"},
        "--batch_sizes": {
            "metavar": "N,N",
            "type": list_of(int),
            "default": (),
            "help": "further signatures, such as 4,8",
        },
        "--image_sizes": {
            "metavar": "PIXELS,PIXELS",
            "type": list_of(int),
            "default": (),
            "help": "further signatures for other square images, such as 288,384",
        },
        "--feature_vector": {
            "action": "store_true",
            "help": "add a signature for the representation",
        },
        **CALIBRATION,
        **LABELS,
    },
)
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    from keras_vit.export.tflite.to_tflite import to_tflite_files

    options, source = export.options, export.source
    files = {options.quantization: options.output}
    if options.all:
        files = {name: options.output / f"{name}.tflite" for name in QUANTIZATIONS}
        _ = export.samples  # before the work of an export that could not be compared
    to_tflite_files(
        source.model,
        files,
        calibration=None if CALIBRATED.isdisjoint(files) else export.calibration(),
        labels=export.labels,
        batch_sizes=options.batch_sizes,
        image_sizes=options.image_sizes,
        feature_vector=options.feature_vector,
        activation=source.activation,
    )
    if not options.all:
        return export.verify_written(options.output)
    reports = [export.verify(file) for file in files.values()]
    _table(reports).show()
    export.write_json([report.to_dict() for report in reports])
    return 0 if all(report.ok for report in reports) else 1


def _table(reports):
    """Returns the table to choose a quantization by."""
    from keras_vit.training.io.printed_table import Table

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
