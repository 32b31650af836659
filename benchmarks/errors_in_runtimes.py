"""Every family of models in every runtime of exported files.

Exports a small model of each family, with random weights, and runs it beside the model in each
runtime that is on this machine. A cell is the largest error of the logits, in units of the largest
of them, and what an accelerator did not take. Fails if any runtime computes it wrong.
"""

import argparse
import fnmatch
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import keras_vit
from benchmarks.harness.command_line import show
from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.onnx.to_onnx import to_onnx
from keras_vit.export.tflite.to_tflite import to_tflite
from keras_vit.export.verification import ONNX, RUNTIMES, TFLITE
from keras_vit.export.verification.verify import verify
from keras_vit.training.command_line.options import CommandParser, list_of
from keras_vit.training.errors import TrainingError, UsageError

IMAGES = 3
IMAGE_SIZE = 32
COMPARED = tuple(name for name, opened in RUNTIMES.items() if opened in (TFLITE, ONNX))
# These compute a second time, in float16.
GPUS = ("gpu", "browser-gpu")
WRONG = "**wrong**"

_SHARED: dict[str, Any] = {"image_size": IMAGE_SIZE, "num_classes": 5}
_RESNET: dict[str, Any] = {**_SHARED, "num_layers": (1, 1), "width_factor": 0.5}
_VIT: dict[str, Any] = {
    **_SHARED,
    "patch_size": 8,
    "hidden_size": 64,
    "mlp_dim": 128,
    "num_heads": 2,
    "num_layers": 2,
}


def _vit(**arguments):
    return lambda: keras_vit.VisionTransformer(**{**_VIT, **arguments})


FAMILIES: dict[str, Callable[[], keras.Model]] = {
    "ViT, class token": _vit(),
    "mean of the tokens": _vit(classifier="gap"),
    "registers, class token beside the mean": _vit(classifier="token_gap", register_tokens=2),
    "attention pooling (MAP)": _vit(classifier="map"),
    "every token": _vit(classifier="unpooled"),
    "two class tokens and heads": _vit(classifier="distilled"),
    "no head": _vit(num_classes=None),
    "pre-training head, erf": _vit(representation_size=16, gelu="erf"),
    "no positions": _vit(position_embedding="none"),
    "positions in two dimensions": _vit(position_embedding="learned_2d"),
    "sines and cosines": _vit(position_embedding="sincos_2d", classifier="gap"),
    "relative positions": _vit(position_embedding="relative"),
    "rotary positions, gated MLP": _vit(
        position_embedding="rope_2d", mlp="swiglu", register_tokens=2
    ),
    "positions before every block": _vit(position_placement="every"),
    "the same, mean of the tokens": _vit(position_placement="every", classifier="gap"),
    "one table before every block": _vit(position_placement="shared"),
    "Axial-ViT": _vit(attention="axial", classifier="gap"),
    "Axial-ViT, MAP": _vit(attention="axial", classifier="map", position_placement="every"),
    "hybrid": _vit(resnet={"num_layers": (1, 1)}, patch_size=1),
    "hybrid, root alone": _vit(resnet={"num_layers": ()}, patch_size=4),
    "BiT": lambda: keras_vit.ResNetV2(**_RESNET),
    "BiT, padded with zeros": lambda: keras_vit.ResNetV2(**_RESNET, pool_padding="zero"),
    "AxialResNet": lambda: keras_vit.AxialResNet(**_RESNET, num_groups=4),
    "Segmenter, linear": lambda: keras_vit.Segmenter(_vit(num_classes=None)(), 5, "linear"),
    "Segmenter, mask": lambda: keras_vit.Segmenter(_vit(num_classes=None)(), 5),
}


def small_model(family: str) -> keras.Model:
    """Returns the model of a key of `FAMILIES`, always with the same random weights."""
    keras.utils.set_random_seed(0)
    return with_noise(FAMILIES[family]())


def with_noise(model: keras.Model, seed: int = 0) -> keras.Model:
    """Sets every weight of a model to noise, so that none can be lost unnoticed, and returns it."""
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        noise = generator.normal(0, 0.1, weight.shape).astype("float32")
        weight.assign(1 + noise if weight.name in ("gamma", "moving_variance") else noise)
    return model


def add_options(parser: CommandParser) -> None:
    text = 'pattern of the names in the table, such as "BiT*"'
    parser.add_argument("--family", default="*", help=text)
    text = "names in the table"
    parser.add_argument("--runtime", type=list_of(str), default=COMPARED, help=text)
    text = "of the files: none (as they are) or float16"
    parser.add_argument("--weights", choices=("none", "float16"), default="none", help=text)


def run(options: argparse.Namespace) -> None:
    family, runtime = options.family, options.runtime
    families = fnmatch.filter(FAMILIES, family)
    if not families or not {*runtime} <= {*COMPARED}:
        known = f"--family of {'; '.join(FAMILIES)} and --runtime of {'; '.join(COMPARED)}"
        raise UsageError(f"Expected {known}. Received: {family}; {', '.join(runtime)}")
    missing: dict[str, str] = {}
    rows = []
    for name in families:
        rows.append({"family": name, **dict(_cells(name, runtime, options.weights, missing))})
        print(*rows[-1].values(), sep=", ", file=sys.stderr)
    show(rows)
    for name, reason in missing.items():
        print(f"{name} is not here: {reason}")
    if any(WRONG in cell for row in rows for cell in row.values()):
        raise TrainingError(f"Expected no cell with {WRONG}.")


def _cells(family, names, weights, missing):
    """Yields (column, cell) of a family; adds to `missing` which runtimes are not here, and why."""
    model = small_model(family)
    size = (IMAGES, IMAGE_SIZE, IMAGE_SIZE, 3)
    images = np.random.default_rng(1).uniform(0, 1, size).astype("float32")
    with tempfile.TemporaryDirectory() as directory:
        tflite = to_tflite(model, pathlib.Path(directory) / "m.tflite", quantization=weights)
        for name in names:
            if name in missing:
                continue
            try:
                file = tflite
                if RUNTIMES[name] == ONNX:
                    half = weights == "float16"
                    file = to_onnx(model, tflite.with_suffix(".onnx"), float16=half)
                report = verify(model, file, images, runtime=name, costs=False)
            except RuntimeMissing as error:
                missing[name] = str(error)
                continue
            text = f"{report.max_error / report.scale:.0e}"
            if report.fully_delegated is False:
                outside = {each.split(":")[0] for each in report.fallbacks or ()}
                text += f"; not delegated: {', '.join(sorted(outside)) or 'a part'}"
            yield name, text if report.ok else f"{WRONG}: {text}"
            if name in GPUS:
                half = report.float16_error
                column = f"{name}, in float16"
                yield column, "–" if half is None else f"{half / report.scale:.0e}"
