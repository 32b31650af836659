"""What is printed of the compiler's answers."""

import pytest

from benchmarks import tpu_compile
from benchmarks.__main__ import main

PROGRAM = {
    "seconds": 61.0,
    "flops": 1e12,
    "bytes": 2e9,
    "arguments": 1e9,
    "temporaries": 3e9,
    "collectives": {"all-reduce": 4},
    "rematerialized": 3,
}


def test_a_program_and_why_there_is_none(monkeypatch, cells):
    answers = {"v5e:4x4": PROGRAM, "v5e:16x16": {"seconds": 5.0, "error": "out of memory"}}
    tasks = []

    def compiler(program, topology, **task):
        tasks.append(task)
        return answers[topology]

    monkeypatch.setattr(tpu_compile, "run_compiler", compiler)
    words = ["tpu_compile", "--engine=jax", "--topology=v5e:4x4,v5e:16x16", "--fsdp=8"]
    assert main([*words, "--batch_size=64", "--accumulation_steps=4"]) == 0
    whole, none = cells()[2:]
    assert whole[2:5] == ["keras_vit", "data=2,fsdp=8", "4 × 16"]
    assert whole[5:] == [
        *("61 s", "1.00", "2.0 GB", "1.00 GB", "3.00 GB"),
        "4 all-reduce, 3 rematerialized",
    ]
    assert none[3:7] == ["data=32,fsdp=8", "4 × 16", "5 s", "out of memory"]
    assert tasks[0]["mesh"] == [-1, 8] and tasks[0]["dropout_rate"] > 0


def test_the_original_has_no_dropout_and_neither_has_ours_beside_it(monkeypatch, cells):
    tasks = {}
    monkeypatch.setattr(
        tpu_compile, "run_compiler", lambda name, **task: tasks.update({name: task}) or PROGRAM
    )
    assert main(["tpu_compile", "--against=vit_jax"]) == 0
    assert [row[2] for row in cells()[2:]] == ["keras_vit", "vit_jax"]
    assert tasks["keras_vit"]["dropout_rate"] == 0.0


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.20G of 15.75G hbm. "
            "Exceeded hbm capacity by 1.45G.",
            "out of memory: used 17.20G of 15.75G",
        ),
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total "
            "memory required for HLO temporaries (578.84G) exceeds available HBM (15.75G). HLO "
            "module: jit_run.",
            "out of memory: used 578.84G of 15.75G",
        ),
        ("INTERNAL: no such chip\nand more", "INTERNAL: no such chip"),
    ],
)
def test_reason(message, expected):
    assert tpu_compile.reason(RuntimeError(message)) == expected


# As the TPU compiler writes them.
TEXT = """\
%all-reduce-scatter.1 (p: f32[8]) -> f32[2] {
  %a = f32[8] all-reduce(%p), channel_id=1, to_apply=%add
}
ENTRY %main (p: f32[8]) -> f32[8] {
  %b = f32[8] all-reduce-start(%p), channel_id=2, to_apply=%add
  %c = f32[8] all-reduce-start(%p), channel_id=2, to_apply=%add
  %d = f32[8] all-reduce(%p), channel_id=3, to_apply=%add
  %e = f32[8] all-reduce-done(%b)
}
"""


def test_a_collective_counts_once_under_its_channel():
    assert tpu_compile.collectives(TEXT) == {"all-reduce": 2, "reduce-scatter": 1}
