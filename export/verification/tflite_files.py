"""A TFLite file in LiteRT, on the processor and the GPU, in OpenVINO and in MediaPipe."""

import dataclasses
import os
import pathlib
import re
import sys

import keras
import numpy as np

from keras_vit.export.errors import RuntimeMissing, damage_refused, imported
from keras_vit.export.tflite.flatbuffer import TFLiteFile
from keras_vit.export.verification.runtimes import Artifact, Delegation
from keras_vit.export.verification.subprocesses import run_compiled
from keras_vit.training.evaluators.exported_files import TFLiteFunction

CHOSEN = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
DRIVERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
# Each with SwiftShader, a Vulkan in software, and the loader that finds it.
BROWSERS = ("/usr/lib/chromium", "/opt/google/chrome", "/usr/lib/chromium-browser")
SOFTWARE, LOADER = "vk_swiftshader_icd.json", "libvulkan.so.1"
_ADAPTER = re.compile(r"Selected adapter: (.*)")
_REFUSED = re.compile(r"not supported by GPU delegate:\n(.*?)^\d+ operations", re.S | re.M)


def open_interpreter(
    path: pathlib.Path,
    model: keras.Model | None = None,
    runtime: str = "litert",
    delegation: Delegation | None = None,
) -> Artifact:
    """Opens a .tflite file in LiteRT's interpreter, or in OpenVINO, on one thread."""
    file = TFLiteFile(path)
    with damage_refused(f"{path} cannot be run"):
        function = TFLiteFunction(path, runtime, threads=1)
    return Artifact(
        kind=file.quantization,
        output=function.output,
        run=lambda images: (function(images), delegation),
        image_size=function.image_shape[:2],
        output_shape=function.output_shape,
        # A quantized file ends with DEQUANTIZE.
        activation="sigmoid" if "LOGISTIC" in file.operations[-2:] else "softmax",
        has_costs=runtime == "litert",
    )


def open_openvino(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens a .tflite file in OpenVINO, on the processor."""
    device = imported("openvino", "openvino").Core().get_property("CPU", "FULL_DEVICE_NAME")
    return open_interpreter(path, model, "openvino", Delegation(device, True))


def open_compiled(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens a .tflite file in LiteRT's `CompiledModel`, on one thread of the processor."""

    def run(images):
        outputs, complete, _ = run_compiled(path, images)
        return outputs["float32"], Delegation("XNNPACK", complete)

    return dataclasses.replace(open_interpreter(path), run=run, has_costs=False)


def open_gpu(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens a .tflite file in LiteRT's `CompiledModel`, on the GPU; the processor runs the rest.

    Raises:
        RuntimeMissing: from `run`, if there is no Vulkan driver.
    """

    def run(images):
        outputs, complete, printed = run_compiled(path, images, True, vulkan_environment())
        adapter, refused = _ADAPTER.search(printed), _REFUSED.search(printed)
        # An adapter without float16 computes in float32, without a word.
        same = np.array_equal(outputs["float16"], outputs["float32"])
        return outputs["float32"], Delegation(
            device=adapter.group(1) if adapter else "GPU",
            complete=complete,
            fallbacks=tuple(map(str.strip, refused.group(1).splitlines())) if refused else (),
            float16=None if same else outputs["float16"],
        )

    return dataclasses.replace(open_interpreter(path), run=run, has_costs=False)


def open_mediapipe(path: pathlib.Path, model: keras.Model | None = None) -> Artifact:
    """Opens a .tflite file in MediaPipe's `ImageClassifier`, which takes photos."""
    artifact = open_interpreter(path)
    mediapipe = imported("mediapipe", "mediapipe")
    tasks = imported("mediapipe.tasks.python", "mediapipe")
    options = tasks.vision.ImageClassifierOptions(
        base_options=tasks.BaseOptions(model_asset_path=os.fspath(path))
    )

    def run(images):
        rows = []
        with (
            damage_refused(f"{path} cannot be run by MediaPipe"),
            tasks.vision.ImageClassifier.create_from_options(options) as classifier,
        ):
            for pixels in np.rint(255 * images).clip(0, 255).astype("uint8"):
                image = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=pixels)
                (found,) = classifier.classify(image).classifications
                ordered = sorted(found.categories, key=lambda category: category.index)
                rows.append([category.score for category in ordered])
        return np.array(rows, "float32").reshape(len(rows), *artifact.output_shape), None

    return dataclasses.replace(artifact, run=run, takes_bytes=True, has_costs=False)


def vulkan_environment() -> dict[str, str]:
    """Returns the variables of a process that computes with Vulkan, as LiteRT's GPU delegate does.

    None where the machine has drivers, the user chose one, or the system is not Linux and has
    its own way to a GPU. Otherwise those of the software Vulkan that Chromium brings along.

    Raises:
        RuntimeMissing: if there is neither.
    """
    own = any(any(pathlib.Path(folder).glob("*.json")) for folder in DRIVERS)
    if sys.platform != "linux" or own or any(os.environ.get(name) for name in CHOSEN):
        return {}
    for browser in map(pathlib.Path, BROWSERS):
        if (browser / SOFTWARE).is_file() and (browser / LOADER).is_file():
            return {
                "VK_ICD_FILENAMES": str(browser / SOFTWARE),
                "LD_PRELOAD": str(browser / LOADER),
            }
    raise RuntimeMissing(
        "Expected a Vulkan driver. There is none in /usr/share/vulkan/icd.d: install the GPU's, or "
        "Chromium, whose software Vulkan gives the same numbers (apt-get install chromium)."
    )
