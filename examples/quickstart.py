"""The whole system in one go, on real images: train, evaluate, export, verify.

    python examples/quickstart.py [--workdir runs/quickstart] [--config.seed=0 …]

Trains a small Vision Transformer on scikit-learn's handwritten digits, hands it over as a TF-Hub
module and as TFLite files, and runs each of them in its real consumer on the test images. Last it
writes a page that runs the model in a browser.
"""

import argparse
import contextlib
import os
import pathlib
import sys

CONFIG = "quickstart"
QUANTIZATIONS = {"none": "float32", "int8": "int8"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workdir", type=pathlib.Path, default=pathlib.Path("runs/quickstart"))
    arguments, overrides = parser.parse_known_args()
    return quickstart(arguments.workdir, overrides)


def quickstart(workdir, overrides):
    # The operations of so small a model are not worth dividing: two at a time train it faster.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with without_greetings():
        from keras_vit.__main__ import main as train

    announce("Training a small Vision Transformer on 1,438 handwritten digits")
    status = train([f"--config={CONFIG}", f"--workdir={workdir}", *overrides])
    if status:
        return status

    from keras_vit import export
    from keras_vit.training.inference.open_model import load_model
    from keras_vit.training.io.quiet_start import quiet_start
    from keras_vit.training.reporting.collect_run_results import report_run

    source = load_model(workdir)
    model, names = source.model, source.interface.class_names
    calibration, _ = digits("train[:200]")
    images, labels = digits("test")

    announce("Exporting it to TF-Hub and TFLite, and running each on the 359 test images")
    reports = {}
    with quiet_start():
        module = export.to_hub(model, workdir / "hub", labels=names)
        reports["TF-Hub"] = verified(model, module, images, labels)
        for quantization, name in QUANTIZATIONS.items():
            file = workdir / f"{name}.tflite"
            export.to_tflite(
                model, file, quantization=quantization, calibration=calibration, labels=names
            )
            reports[f"TFLite {name}"] = verified(model, file, images, labels)
        keras_layer_error = error_in_hub_keras_layer(model, module, images)

    of_each = [images[labels == digit][0] for digit in range(10)]
    page = written_page(model, workdir / "web.html", names, of_each)
    report_run(workdir)  # again: it links what was exported
    show(workdir, reports, keras_layer_error, page)
    return 0 if all(report.ok for report in reports.values()) else 1


@contextlib.contextmanager
def without_greetings():
    """Drops what TensorFlow's libraries print of a machine before any setting reaches them."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)


def digits(split):
    """Returns the images of a split, (n, height, width, 3) in [0, 1], and their labels."""
    import numpy as np

    from keras_vit import training

    dataset = training.load_dataset(
        "digits", split, preprocess="decode|resize(32)|value_range(0,1)"
    )
    pairs = [(example["image"], example["label"]) for example in dataset.as_numpy_iterator()]
    images, labels = zip(*pairs, strict=True)
    return np.stack(images), np.array(labels)


def verified(model, artifact, images, labels):
    from keras_vit import export

    report = export.verify(model, artifact, images, labels)
    print(f"  {artifact}: {'good' if report.ok else 'NOT GOOD'}", flush=True)
    return report


def written_page(model, file, names, examples):
    """Writes a page that runs the model in a browser, and returns its path or why there is none."""
    from keras_vit import export

    try:
        return export.to_web(
            model, file, labels=names, title="Handwritten digits", examples=examples,
            single_file=True,
        )  # fmt: skip
    except (ValueError, OSError) as error:
        return f"not written: {error}"


def error_in_hub_keras_layer(model, module, images):
    """Returns the largest difference between the model and `hub.KerasLayer`, its usual consumer."""
    import numpy as np
    import tensorflow_hub as hub

    layer = hub.KerasLayer(str(module), trainable=True)
    return float(np.abs(layer(images) - model.predict(images * 2 - 1, verbose=0)).max())


def announce(text):
    from rich.console import Console

    Console().rule(f"[bold]{text}", align="left")


def show(workdir, reports, keras_layer_error, page):
    from rich.console import Console

    from keras_vit.training.io.printed_table import Table

    accuracy = next(iter(reports.values())).model_accuracy
    size = (workdir / "model.keras").stat().st_size / 1024
    rows = [("Keras", f"{100 * accuracy:.2f} %", "–", "–", f"{size:.0f} KiB", "–")]
    rows += [
        (
            name,
            f"{100 * report.artifact_accuracy:.2f} %",
            f"{100 * report.agreement:.2f} %",
            f"{report.max_error:.1e}",
            f"{report.size_bytes / 1024:.0f} KiB",
            f"{report.latency_ms[1]:.2f} ms",
        )
        for name, report in reports.items()
    ]
    columns = ("", "accuracy", "agreement", "max error", "size", "one image")
    Table(columns, rows, "The same model, four ways, on the 359 test images").show()
    console = Console()
    console.print(
        f"hub.KerasLayer differs from the Keras model by at most {keras_layer_error:.1e}."
    )
    for label, file in {
        "Report": "report.html",
        "Keras model": "model.keras",
        "TF-Hub module": "hub",
        "TFLite files": "*.tflite",
    }.items():
        console.print(f"  {label:<14} {workdir / file}")
    console.print(f"  {'In a browser':<14} {page}")
    for name, report in reports.items():
        for failure in report.failures:
            console.print(f"[red]{name}: {failure}")


if __name__ == "__main__":
    sys.exit(main())
