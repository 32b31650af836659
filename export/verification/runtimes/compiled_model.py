"""A TFLite file, run by LiteRT's `CompiledModel`, which applications on phones call."""

import json
import pathlib
import re
import tempfile
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from export.errors import ExportError, RuntimeMissing
from export.verification.latency_and_memory import delegation
from export.verification.own_process import run_module
from export.verification.runtimes.runtime import Delegation
from export.verification.runtimes.tflite_interpreter import TFLiteInterpreter
from export.verification.runtimes.vulkan_driver import vulkan_environment

PROGRAM = "export.verification.runtimes.litert_process"
_ADAPTER = re.compile(r"Selected adapter: (.*)")
_REFUSED = re.compile(r"not supported by GPU delegate:\n(.*?)^\d+ operations", re.S | re.M)
_NO_GPU = ("No adapters found", "GPU accelerator could not be loaded")


class CompiledOnCPU(TFLiteInterpreter):
    """The runtime of a .tflite file on one thread of the processor; see `Runtime`."""

    def run(self, images: np.ndarray) -> np.ndarray:
        outputs, complete, _ = self._in_process(images)
        self.delegation = Delegation("XNNPACK", complete, () if complete else self._outside())
        return outputs["float32"]

    def _outside(self):
        interpreter = Interpreter(str(self._path))
        interpreter.allocate_tensors()
        outside = delegation(interpreter)["operations_outside_delegate"]
        return tuple(f"{name}: XNNPACK has none such" for name in outside)

    def costs(self, threads: int, image_size: tuple[int, int]) -> dict[str, Any]:
        return {}

    def _in_process(self, images, *options, environment=None):
        """Returns (outputs by arithmetic, whether all was accelerated, what LiteRT printed)."""
        with tempfile.TemporaryDirectory() as directory:
            given, made = (pathlib.Path(directory) / name for name in ("in.npy", "out.npz"))
            np.save(given, images)
            paths = [str(self._path), f"--images={given}", f"--outputs={made}"]
            process = run_module(PROGRAM, [*paths, *options], environment)
            if process.returncode:
                raise _error(self._path, process)
            answer = json.loads(process.stdout.splitlines()[-1])
            with np.load(made) as arrays:
                return dict(arrays), answer["complete"], process.stderr


class CompiledOnGPU(CompiledOnCPU):
    """The runtime of a .tflite file on the GPU, and on the processor what the GPU refuses.

    Raises:
        RuntimeMissing: if there is no Vulkan driver.
    """

    _last: tuple[np.ndarray, np.ndarray | None] | None = None

    def run(self, images: np.ndarray) -> np.ndarray:
        environment = vulkan_environment()
        outputs, complete, printed = self._in_process(images, "--gpu", environment=environment)
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


def _error(path, process):
    text = process.stderr
    if any(sign in text for sign in _NO_GPU):
        return RuntimeMissing(
            "Expected a GPU. LiteRT found none that its Vulkan driver can use: install the GPU's "
            "driver, or set VK_ICD_FILENAMES to that of Chromium (vk_swiftshader_icd.json)."
        )
    lines = [line for line in text.splitlines() if line.strip()]
    return ExportError(
        f"{path} cannot be run by LiteRT's CompiledModel, which ended with status "
        f"{process.returncode}: {' '.join(lines[-3:])[-500:]}"
    )
