"""What the commands of `python -m export` do."""

import json
import logging
import signal
import sys

from export.errors import ExportError


def run(options):
    """Runs a parsed command; an expected failure prints one line and returns 2."""
    # So that a killed export removes its temporary files as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _start_tensorflow()
        return COMMANDS[options.command](options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted, nothing was written", file=sys.stderr)
        return 130


def _start_tensorflow():
    from absl import logging as absl_logging

    from training.io.quiet_start import import_tensorflow

    import_tensorflow()
    absl_logging.set_verbosity(absl_logging.ERROR)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)


def _hub(options):
    import tempfile

    from export.hub import tar_archive
    from export.hub.to_hub import to_hub

    source = _source(options)
    arguments = {
        "labels": _labels(options, source),
        "resolution": options.resolution,
        "output": options.module_output,
        "activation": options.activation or source.activation,
    }
    if options.module_output == "representation":
        arguments["labels"] = None
    if options.output.name.endswith(tar_archive.SUFFIXES):
        with tempfile.TemporaryDirectory() as directory:
            tar_archive.pack(
                to_hub(source.model, f"{directory}/module", **arguments), options.output
            )
    else:
        to_hub(source.model, options.output, **arguments)
    print(f"wrote {options.output}")
    return _verify_written(options, source, options.output)


def _tflite(options):
    from export.tflite.to_tflite import to_tflite

    source = _source(options)
    arguments = {
        "labels": _labels(options, source),
        "batch_sizes": options.batch_sizes,
        "feature_vector": options.feature_vector,
    }
    if options.all:
        return _all_quantizations(options, source, arguments)
    calibration = None
    if options.quantization.startswith("int8"):
        calibration = _calibration(options, source)
    to_tflite(
        source.model,
        options.output,
        quantization=options.quantization,
        calibration=calibration,
        **arguments,
    )
    print(f"wrote {options.output}")
    return _verify_written(options, source, options.output)


def _all_quantizations(options, source, arguments):
    from export.tflite.quantization import QUANTIZATIONS
    from export.tflite.to_tflite import to_tflite_files

    images, labels = _images(options, source)
    files = {name: options.output / f"{name}.tflite" for name in QUANTIZATIONS}
    to_tflite_files(source.model, files, calibration=_calibration(options, source), **arguments)
    reports = [_verify(source, file, images, labels) for file in files.values()]
    _show_choice(reports)
    _write_json(options, [report.to_dict() for report in reports])
    return 0 if all(report.ok for report in reports) else 1


def _npz(options):
    import keras_vit
    from export.portable_model import portable

    source = _source(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    keras_vit.save_checkpoint(portable(source.model), options.output)
    print(f"wrote {options.output}")
    return _verify_written(options, source, options.output)


def _verify_command(options):
    source = _source(options)
    images, labels = _images(options, source)
    return _show(options, _verify(source, options.artefact, images, labels))


def _card(options):
    from export.model_card import Handle, write_card
    from export.portable_model import portable

    handle = Handle.parse(options.handle)
    source = _source(options)
    images, labels = _images(options, source)
    report = _verify(source, options.artefact, images, labels)
    files = write_card(
        portable(source.model),
        report,
        handle,
        options.output,
        license=options.license,
        config=source.config,
    )
    _write_json(options, report.to_dict())
    print("\n".join(f"wrote {file}" for file in files))
    return 0


COMMANDS = {
    "card": _card,
    "hub": _hub,
    "tflite": _tflite,
    "npz": _npz,
    "verify": _verify_command,
}


def _source(options):
    from export.source import load_source

    return load_source(
        options.source,
        model_name=options.model,
        image_size=options.image_size,
        num_classes=options.num_classes,
    )


def _labels(options, source):
    from export.labels import read_labels

    return read_labels(options.labels) if options.labels else source.labels


def _images(options, source, data=None, split=None):
    """Returns (images, labels) of --data, or of the data set that the run was evaluated on."""
    from export.portable_model import image_size
    from export.sample_images import load_images

    data = data or options.data
    config = source.config
    if data is None and not config.get("dataset"):
        raise ExportError(
            "Expected images to verify with: --dataset=NAME, --dataset=folder:PATH, a directory of "
            "image files or a .npz file. Only a run directory knows its own."
        )
    own = data is None
    return load_images(
        data or config["dataset"],
        image_size(source.model),
        split=split or options.split or (config.get("eval_split") if own else None) or "test",
        data_dir=options.data_dir or config.get("data_dir") or None,
        preprocess=config.get("eval_preprocess") if own else None,
        limit=options.count,
    )


def _calibration(options, source):
    """Returns images to determine ranges with: training images, so that the test stays unseen."""
    split = source.config.get("train_split")
    if options.calibration or options.data or not split:
        return _images(options, source, data=options.calibration)[0]
    return _images(options, source, split=split)[0]


def _verify(source, artefact, images, labels):
    from export.verification.verify import verify

    return verify(source.model, artefact, images, labels)


def _verify_written(options, source, artefact):
    if options.data is None and not source.config.get("dataset"):
        print(
            f"not verified: no images. Do it with: python -m export verify {artefact} "
            f"--against={options.source} --dataset=…"
        )
        return 0
    images, labels = _images(options, source)
    return _show(options, _verify(source, artefact, images, labels))


def _show(options, report):
    print(report)
    _write_json(options, report.to_dict())
    return 0 if report.ok else 1


def _show_choice(reports):
    """Prints a table to choose a quantisation by."""
    from training.reporting.table import Table

    rows = []
    for report in reports:
        accuracy = "-"
        if report.artefact_accuracy is not None:
            accuracy = f"{100 * report.artefact_accuracy:.2f}"
        rows.append(
            (
                report.kind,
                f"{report.size_bytes / 2**20:.2f}",
                *(f"{latency:.2f}" for latency in report.latency_ms.values()),
                f"{report.peak_memory_bytes / 2**20:.0f}",
                f"{report.max_error:.1e}",
                "-" if report.agreement is None else f"{100 * report.agreement:.2f}",
                accuracy,
                f"{sum(report.operations_outside_delegate.values())}",
                "good" if report.ok else "; ".join(report.failures),
            )
        )
    columns = (
        "quantisation",
        "MiB",
        *(f"ms, {threads} thread(s)" for threads in reports[0].latency_ms),
        "peak MiB",
        "largest error",
        "agreement %",
        "accuracy %",
        "ops outside XNNPACK",
        "result",
    )
    Table(columns, rows, "TFLite files").show()


def _write_json(options, content):
    if options.json:
        options.json.write_text(json.dumps(content, indent=2) + "\n")
