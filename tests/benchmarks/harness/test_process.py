"""Processes that are measured, and that may run out of memory; the line above every table."""

import pytest

from benchmarks.compare_libraries import measure
from benchmarks.harness import report
from benchmarks.harness.process import Process, ProcessError
from benchmarks.libraries import Case
from keras_vit.variants import SIZES


@pytest.mark.long
def test_a_process_measures_until_it_takes_too_much():
    task = {"model": "ViT-Ti/16", "image_size": 32, "train": True}
    task |= {"precision": "float32", "jit_compile": False}
    rates = "benchmarks.figure_11_and_table_6:rates"
    # 2^17 images of 32 pixels are 1.5 GiB before any of them is looked at.
    with Process(rates, task, threads=1, memory=3 * 2**29) as process:
        assert process.facts["device"] in ("CPU", "GPU")
        assert process.ask(batch_size=2)["images_per_second"] > 0
        with pytest.raises(ProcessError) as error:
            process.ask(batch_size=2**17)
    assert error.value.out_of_memory


def test_memory_is_that_of_the_process_alone():
    # This one holds TensorFlow, 400 MiB and more, when it starts the other.
    with Process("json:loads", {"s": "[{}, null]"}) as process:
        assert 2**22 < process.facts["memory"] < 2**27


@pytest.mark.parametrize(("text", "out_of_memory"), [("no disk", False), ("MemoryError", True)])
def test_a_process_that_fails_says_why(text, out_of_memory):
    with pytest.raises(ProcessError, match=text) as error:
        Process("builtins:exit", {"code": text})
    assert error.value.out_of_memory == out_of_memory


@pytest.mark.long
def test_a_step_is_timed_once_per_round():
    arguments = {**SIZES["Ti"], "patch_size": 16, "image_size": 32, "num_classes": 10}
    case = Case("keras_vit", {**arguments, "num_layers": 1}, batch_size=2)
    (result,) = measure([case], rounds=2, seconds=0.0, threads=1)
    assert len(result.per_image) == 2 and min(result.per_image) > 0
    assert result.memory > 2**26


def test_gpus_are_named(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H100\necho NVIDIA H100\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert " 2 of " in report.machine(2) and " cores, 2 × NVIDIA H100, load" in report.machine(2)
    program.write_text("#!/bin/sh\nexit 9\n")
    assert " cores, load average" in report.machine(2)
