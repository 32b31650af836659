"""`keras-vit export COMMAND`: the options of each, and what it calls."""

import argparse
import pathlib
import shlex
import tempfile
from typing import Any

from keras_vit.training.command_line.options import CommandParser, at_least_1, list_of, whole
from keras_vit.training.io.paths import any_path, local_path
from keras_vit.training.io.printed_table import Table
from keras_vit.training.io.quiet_start import import_tensorflow, quiet_start

from .errors import imported
from .hub import tar_gz
from .tflite.quantization import QUANTIZATIONS
from .verification import RUNTIMES


def _add_model_and_output(parser, output):
    """Adds SOURCE, its images, and --output, explained by `output`."""
    parser.add_source(exported=False)
    parser.add_path("--output", output, metavar="PATH", required=True)
    _add_images(parser, 200)


def _add_artifact(parser, text, count=200):
    """Adds ARTIFACT, explained by `text`, --against=SOURCE and `count` images."""
    parser.add_argument("artifact", metavar="ARTIFACT", type=any_path, help=text)
    parser.add_source("--against", exported=False, dest="source", required=True)
    _add_images(parser, count)


def _add_images(parser, count):
    """Adds the head of a checkpoint's model, the images to verify with, and --json."""
    text = "size of a checkpoint's head, to keep it"
    parser.add_argument("--num_classes", metavar="N", type=at_least_1, help=text)
    text = "images to verify with: a data set's name, folder:PATH, a directory of images, or .npz; "
    text += "default: the run's"
    parser.add_argument("--dataset", "--data", metavar="NAME", store="keep", help=text)
    parser.add_argument("--split", help="default: the run's, else test, or the only one")
    parser.add_data_dir()
    number: dict[str, Any] = {"metavar": "N", "type": at_least_1, "default": count}
    parser.add_argument("--count", "--images", **number, help=f"how many; default {count}")
    parser.add_path("--json", "also write the report to this file", metavar="FILE")


def _add_labels(parser, module_output=False):
    """Adds --labels, and with `module_output` --module_output."""
    if module_output:
        text = "what calling it returns; default: the logits, if there is a head"
        parser.add_argument("--module_output", choices=("logits", "representation"), help=text)
    text = "text with a class name a line; default: those of the run's data set"
    parser.add_argument("--labels", metavar="FILE", type=any_path, help=text)


def _add_quantization(parser):
    """Adds --quantization and --calibration."""
    text = "of the weights, with int8 of what layers pass on too; default dynamic"
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="dynamic", help=text)
    text = "images for int8, as --dataset; default: the run's training images, else --dataset"
    parser.add_argument("--calibration", metavar="NAME", help=text)


def _opened(options):
    """Returns the `Export` of a command's options, once TensorFlow is imported."""
    import_tensorflow()
    from .run_export import Export

    return Export(options)


class hub:
    """A TF2 SavedModel for TF-Hub, which can be called, fine-tuned and served.

    keras-vit export hub runs/quickstart --output=modules/digits
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_model_and_output(parser, "directory to write, or .tar.gz")
        text = "any: position embeddings of every image size"
        parser.add_argument("--resolution", choices=("fixed", "any"), default="fixed", help=text)
        text = "of the probabilities"
        parser.add_argument("--activation", choices=("softmax", "sigmoid"), help=text)
        text = "add a signature for which patches speak for a class"
        parser.add_argument("--class_maps", action="store_true", help=text)
        _add_labels(parser, module_output=True)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from .hub.to_hub import to_hub

        with quiet_start():
            imported("tensorflow_hub", "hub")
        model = export.source.model
        model.activation = options.activation or model.activation

        def write(model, path, **arguments):
            if not path.name.endswith(tar_gz.SUFFIXES):
                return to_hub(model, path, **arguments)
            with tempfile.TemporaryDirectory() as directory:
                return tar_gz.pack(to_hub(model, f"{directory}/module", **arguments), path)

        return export.write(
            write,
            labels=export.labels,
            output=options.module_output,
            resolution=options.resolution,
            class_maps=options.class_maps,
        )


class tflite:
    """A TFLite (LiteRT) file for phones, or one for each quantization; XNNPACK runs all of it.

    keras-vit export tflite runs/quickstart --output=digits.tflite --quantization=int8
    keras-vit export tflite runs/quickstart --output=tflite/ --all
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_model_and_output(parser, "file to write; with --all a directory")
        _add_quantization(parser)
        text = "every quantization, and a table"
        parser.add_argument("--all", action="store_true", help=text)
        sizes: dict[str, Any] = {"type": list_of(at_least_1), "default": ()}
        text = "further signatures, such as 4,8"
        parser.add_argument("--batch_sizes", metavar="N,N", **sizes, help=text)
        text = "signatures for other square images, such as 288,384"
        parser.add_argument("--image_sizes", metavar="PIXELS,PIXELS", **sizes, help=text)
        text = "add a signature for the representation"
        parser.add_argument("--feature_vector", action="store_true", help=text)
        text = "give probabilities in place of logits"
        parser.add_argument("--probabilities", action="store_true", help=text)
        _add_labels(parser)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from .tflite.to_tflite import to_tflite

        kinds = QUANTIZATIONS if options.all else [options.quantization]
        added = ("batch_sizes", "image_sizes", "feature_vector", "probabilities")
        arguments = {
            "quantization": QUANTIZATIONS if options.all else options.quantization,
            "calibration": export.calibration(kinds),
            "labels": export.labels,
            **{name: getattr(options, name) for name in added},
        }
        if not options.all:
            return export.write(to_tflite, **arguments)
        _ = export.samples  # before the work of an export that could not be compared
        to_tflite(export.source.model, options.output, **arguments)
        reports = [export.verify(options.output / f"{kind}.tflite") for kind in kinds]
        values = [dict(report.rows()) for report in reports]
        rows = [
            (name, *(each[name] for each in values))
            for name in values[0]
            if name not in ("artifact", "runtime", "images")
        ]
        columns = ["", *(report.kind for report in reports)]
        Table(columns, rows, "TFLite files").show(wrapped=columns)
        export.write_json([report.to_dict() for report in reports])
        return 0 if all(report.ok for report in reports) else 1


class onnx:
    """An ONNX file, for ONNX Runtime and its like.

    keras-vit export onnx runs/quickstart --output=digits.onnx
    keras-vit export onnx runs/quickstart --output=features.onnx --module_output=representation
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_model_and_output(parser, "file to write")
        text = "store and compute in float16, for GPUs"
        parser.add_argument("--float16", action="store_true", help=text)
        _add_labels(parser, module_output=True)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from .onnx.to_onnx import to_onnx

        output = {"labels": export.labels, "output": options.module_output}
        return export.write(to_onnx, float16=options.float16, **output)


class web:
    """A page that runs a model in the browser of whoever opens it.

    It works on phones and computers, without a network and without a server that computes: images
    stay on the device.

      keras-vit export web runs/quickstart --output=site/
      keras-vit export web runs/quickstart --output=digits.html --single-file
      keras-vit export web imagenet21k/ViT-B_16 --model=ViT-B/16 --output=site/ --teach
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_model_and_output(parser, "directory to write; with --single-file an .html file")
        text = "one file, which opens without a server"
        parser.add_argument("--single-file", action="store_true", help=text)
        text = "the page learns classes from its visitor's photos, of a model with or without head"
        parser.add_argument("--teach", action="store_true", help=text)
        parser.add_argument("--title", help="at the top of the page; default: what the model does")
        _add_quantization(parser)
        text = "images of --dataset, or of the run's, to try; they are published with the page"
        parser.add_argument("--examples", metavar="N", type=whole, default=0, help=text)
        text = "where its archives lie, as `npm pack` names them; default: fetched from npm once"
        parser.add_argument("--litert_js", metavar="DIR", type=local_path, help=text)
        _add_labels(parser)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from .web.to_web import to_web

        status = export.write(
            to_web,
            labels=export.labels,
            title=options.title,
            quantization=options.quantization,
            calibration=export.calibration([options.quantization]),
            examples=[*export.samples[0][: options.examples]] if options.examples else [],
            single_file=options.single_file,
            teach=options.teach,
            litert_folder=options.litert_js,
        )
        place = shlex.quote(str(options.output))
        if options.single_file:
            print(f"Open it in a browser: python -m webbrowser {place}")
        else:
            print(f"See it: python -m http.server --directory {place} 8000 --bind 127.0.0.1")
        return status


class hugging_face:
    """A folder that transformers or timm open, with its card, for the Hugging Face Hub.

    --push uploads it, once verified, to a repository that is private if it is new.

      keras-vit export hugging_face runs/quickstart --output=digits
      keras-vit export hugging_face runs/birds --output=birds --library=timm --push=USER/birds
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_model_and_output(parser, "directory to write")
        libraries, text = ("transformers", "timm"), "that opens it; default transformers"
        parser.add_argument("--library", choices=libraries, default=libraries[0], help=text)
        parser.add_argument("--license", metavar="NAME", help="of the weights, such as apache-2.0")
        parser.add_argument("--push", metavar="USER/NAME", help="a repository to upload it to")
        _add_labels(parser)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from .hugging_face import push, to_hugging_face

        facts = {"library": options.library, "license": options.license}
        status = export.write(to_hugging_face, labels=export.labels, **facts)
        if options.push and not status:
            print(f"pushed to {push(options.output, options.push)}")
        return status


class npz:
    """A checkpoint in the official layout, the .npz file that the original code reads.

    keras-vit export npz runs/quickstart --output=digits.npz
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_model_and_output(parser, "file to write")

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from keras_vit.checkpoints import save_checkpoint

        return export.write(save_checkpoint)


class verify:
    """Does an artifact give what its model gives?

    Runs it in its real consumer, on real images, and prints its errors against the model, its
    accuracy, size, latency and memory. The exit status is 1 if it misses a threshold.

      keras-vit export verify digits.tflite --against=runs/quickstart
      keras-vit export verify digits.tflite --against=runs/quickstart --runtime=gpu
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_artifact(parser, "directory, .tar.gz, .tflite, .onnx, .npz or a web page")
        text = "what runs it; default: the interpreter for .tflite files"
        parser.add_argument("--runtime", choices=RUNTIMES, help=text)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        return export.show(export.verify(options.artifact, options.runtime))


class inspect:
    """Which layers of a quantized file are bad?

    Runs a quantized TFLite file and the same model in float32 on a few images, compares what every
    operation gives, and prints the errors as a table and, with --output, draws them. A layer whose
    error is far above that of its inputs is where the file loses.

      keras-vit export inspect digits.tflite --against=runs/quickstart --output=layers.png
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_artifact(parser, "quantized .tflite file", count=8)
        text = "also draw the errors into this .png"
        parser.add_argument("--output", metavar="FILE", type=local_path, help=text)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from keras_vit.training.inference.interface import interface_of
        from keras_vit.training.reporting.matplotlib_figures import write_png

        from .tflite.flatbuffer import TFLiteFile
        from .tflite.layer_errors import figure, layer_errors
        from .tflite.to_tflite import to_tflite
        from .verification.verify import require_image_size

        TFLiteFile(options.artifact)  # says what is wrong with a damaged one
        images, _ = export.samples
        model, interface = export.source.model, interface_of(options.artifact)
        require_image_size(options.artifact, interface.get("image_size"), model)
        inside = interface.get("activation_inside")
        with tempfile.TemporaryDirectory() as directory:
            reference = pathlib.Path(directory) / "float32.tflite"
            to_tflite(model, reference, activation=inside, probabilities=inside is not None)
            errors = layer_errors(reference, options.artifact, images)
        rows = [
            (each.layer, each.operation, each.type, f"{each.error:.4f}", f"{each.inputs_error:.4f}")
            for each in errors
        ]
        columns = ("layer", "operation", "type", "error", "of its inputs")
        Table(columns, rows, f"{options.artifact}: error of each layer, relative").show()
        if options.output:
            write_png(figure(errors), options.output)
            print(f"wrote {options.output}")
        export.write_json([each._asdict() for each in errors])
        return 0


class card:
    """The texts that publish a module: TF-Hub's documentation page and Kaggle's metadata.

    It verifies the artifact first.

      keras-vit export card modules/digits --against=RUN --handle=me/digits/1 --license=mit \\
          --output=out
    """

    def add_options(self, parser: CommandParser) -> None:
        _add_artifact(parser, "directory of a module, or .tflite file")
        text = "directory for the module's .md and Kaggle's two .json files"
        parser.add_path("--output", text, required=True)
        text = "the name that the module is published under"
        form = "PUBLISHER/MODEL/VERSION"
        parser.add_argument("--handle", metavar=form, required=True, help=text)
        text = "of the weights, as an SPDX identifier"
        parser.add_argument("--license", metavar="NAME", required=True, help=text)

    def run(self, options: argparse.Namespace) -> int:
        export = _opened(options)
        from keras_vit.training.reporting.collect_run_results import figures_of
        from keras_vit.training.reporting.metrics_csv import read_metrics

        from .model_card import require_handle, write_card

        source = export.source
        require_handle(options.handle)  # before the work of verifying
        metrics = source.run and any_path(options.source) / "metrics.csv"
        has_metrics = metrics and metrics.exists()
        figures = figures_of(read_metrics(metrics), source.run) if has_metrics else {}
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
