"""Processes that are measured, and that may run out of memory."""

import pytest

from benchmarks.harness import library_steps
from benchmarks.harness.process import Process, ProcessError
from benchmarks.libraries import Case
from keras_vit.variants import SIZES

RATES = "benchmarks.paper:rates"


@pytest.fixture
def task():
    return {"model": "ViT-Ti/16", "image_size": 32, "train": False}


@pytest.mark.long
def test_a_process_measures_until_it_takes_too_much(task):
    # 2^17 images of 32 pixels are 1.5 GiB before any of them is looked at.
    with Process(
        RATES,
        {**task, "train": True, "precision": "float32", "jit_compile": False},
        threads=1,
        memory=3 * 2**29,
    ) as process:
        assert process.facts["device"] in ("CPU", "GPU")
        assert process.ask(batch_size=2)["images_per_second"] > 0
        with pytest.raises(ProcessError) as error:
            process.ask(batch_size=2**17)
    assert error.value.out_of_memory


def test_memory_is_that_of_the_process_alone():
    # This one holds TensorFlow, 400 MiB and more, when it starts the other.
    with Process("json:loads", {"s": "[{}, null]"}) as process:
        assert 2**22 < process.facts["memory"] < 2**27


@pytest.mark.long
def test_a_process_that_fails_otherwise_says_why(task):
    with pytest.raises(ProcessError, match="ViT-Z/16") as error:
        Process(RATES, {**task, "model": "ViT-Z/16"})
    assert not error.value.out_of_memory


@pytest.mark.long
def test_a_step_is_timed_once_per_round():
    arguments = {**SIZES["Ti"], "patch_size": 16, "image_size": 32, "num_classes": 10}
    case = Case("keras_vit", {**arguments, "num_layers": 1}, batch_size=2)
    (result,) = library_steps.measure([case], rounds=2, seconds=0.0, threads=1)
    assert len(result.rounds) == 2 and min(result.rounds) > 0
    assert result.facts["executed_macs"] < result.facts["macs"]
    assert result.memory > 2**26
