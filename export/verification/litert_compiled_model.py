"""A TFLite file, run by LiteRT's `CompiledModel`, which applications on phones call."""

import os
import pathlib
import re
import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.verification.litert_interpreter import TFLiteInterpreter
from keras_vit.export.verification.runtimes import Delegation
from keras_vit.export.verification.subprocesses import delegation, run_compiled

CHOSEN = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
DRIVERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
# Each with SwiftShader, a Vulkan in software, and the loader that finds it.
BROWSERS = ("/usr/lib/chromium", "/opt/google/chrome", "/usr/lib/chromium-browser")
SOFTWARE, LOADER = "vk_swiftshader_icd.json", "libvulkan.so.1"
_ADAPTER = re.compile(r"Selected adapter: (.*)")
_REFUSED = re.compile(r"not supported by GPU delegate:\n(.*?)^\d+ operations", re.S | re.M)


class CompiledOnCPU(TFLiteInterpreter):
    """The runtime of a .tflite file on one thread of the processor; see `Runtime`."""

    has_costs = False

    def run(self, images: np.ndarray) -> np.ndarray:
        outputs, complete, _ = run_compiled(self._path, images)
        self.delegation = Delegation("XNNPACK", complete, () if complete else self._outside())
        return outputs["float32"]

    def _outside(self):
        interpreter = Interpreter(str(self._path))
        interpreter.allocate_tensors()
        outside = delegation(interpreter)["operations_outside_delegate"]
        return tuple(f"{name}: XNNPACK has none such" for name in outside)


class CompiledOnGPU(CompiledOnCPU):
    """The runtime of a .tflite file on the GPU, and on the processor what the GPU refuses.

    Raises:
        RuntimeMissing: if there is no Vulkan driver.
    """

    def run(self, images: np.ndarray) -> np.ndarray:
        environment = vulkan_environment()
        outputs, complete, printed = run_compiled(self._path, images, True, environment)
        adapter, refused = _ADAPTER.search(printed), _REFUSED.search(printed)
        # An adapter without float16 computes in float32, without a word.
        same = np.array_equal(outputs["float16"], outputs["float32"])
        self.delegation = Delegation(
            device=adapter.group(1) if adapter else "GPU",
            complete=complete,
            fallbacks=tuple(map(str.strip, refused.group(1).splitlines())) if refused else (),
            float16=None if same else outputs["float16"],
        )
        return outputs["float32"]


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
