"""The line on the machine above every table."""

import contextlib
import sys
from types import SimpleNamespace

from benchmarks.harness import report

CPU = SimpleNamespace(platform="cpu", device_kind="cpu")
GPU = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100 80GB HBM3")


def described(devices, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(local_devices=lambda: devices))

    def process(function, task):
        facts, _ = getattr(sys.modules[function.partition(":")[0]], function.partition(":")[2])()
        return contextlib.nullcontext(SimpleNamespace(facts=facts))

    monkeypatch.setattr(report, "Process", process)
    return report.machine(2)


def test_jax_names_its_accelerators(monkeypatch):
    assert " cores, 2 × NVIDIA H100 80GB HBM3, load average" in described([GPU, GPU], monkeypatch)


def test_a_cpu_is_named_once(monkeypatch):
    assert " cores, load average" in described([CPU, CPU], monkeypatch)


def test_tensorflow_has_no_devices_of_jax(monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)
    assert report.accelerators() == {}
