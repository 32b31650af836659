"""A TFLite file, run by LiteRT's `CompiledModel`, which applications on phones call."""

import os
import pathlib
import re
import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from keras_vit.export.errors import ExportError, RuntimeMissing
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
_NO_GPU = ("No adapters found", "GPU accelerator could not be loaded")


class CompiledOnCPU(TFLiteInterpreter):
    """The runtime of a .tflite file on one thread of the processor; see `Runtime`."""

    has_costs = False

    def run(self, images: np.ndarray) -> np.ndarray:
        outputs, complete, _ = self._in_process(images)
        self.delegation = Delegation("XNNPACK", complete, () if complete else self._outside())
        return outputs["float32"]

    def _outside(self):
        interpreter = Interpreter(str(self._path))
        interpreter.allocate_tensors()
        outside = delegation(interpreter)["operations_outside_delegate"]
        return tuple(f"{name}: XNNPACK has none such" for name in outside)

    def _in_process(self, images, gpu=False, environment=None):
        """Returns (outputs by arithmetic, whether all was accelerated, what LiteRT printed)."""
        process, outputs, complete = run_compiled(self._path, images, gpu, environment)
        printed = process.stderr
        if any(sign in printed for sign in _NO_GPU) and process.returncode:
            raise RuntimeMissing(
                "Expected a GPU. LiteRT found none that its Vulkan driver can use: install the "
                "GPU's driver, or set VK_ICD_FILENAMES to that of Chromium "
                "(vk_swiftshader_icd.json)."
            )
        if process.returncode:
            lines = [line for line in printed.splitlines() if line.strip()]
            raise ExportError(
                f"{self._path} cannot be run by LiteRT's CompiledModel, which ended with status "
                f"{process.returncode}: {' '.join(lines[-3:])[-500:]}"
            )
        return outputs, complete, printed


class CompiledOnGPU(CompiledOnCPU):
    """The runtime of a .tflite file on the GPU, and on the processor what the GPU refuses.

    Raises:
        RuntimeMissing: if there is no Vulkan driver.
    """

    _last: tuple[np.ndarray, np.ndarray | None] | None = None

    def run(self, images: np.ndarray) -> np.ndarray:
        outputs, complete, printed = self._in_process(images, True, vulkan_environment())
        adapter, refused = _ADAPTER.search(printed), _REFUSED.search(printed)
        self.delegation = Delegation(
            device=adapter.group(1) if adapter else "GPU",
            complete=complete,
            fallbacks=tuple(map(str.strip, refused.group(1).splitlines())) if refused else (),
        )
        # An adapter without float16 computes in float32, without a word.
        same = np.array_equal(outputs["float16"], outputs["float32"])
        self._last = images, None if same else outputs["float16"]
        return outputs["float32"]

    def run_float16(self, images: np.ndarray) -> np.ndarray | None:
        if self._last is None or self._last[0] is not images:
            self.run(images)
        assert self._last is not None
        return self._last[1]


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
