"""What is read from a compiler's messages and programs."""

import pytest

from benchmarks.harness.compiled_program import collectives, reason


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
    assert reason(RuntimeError(message)) == expected


# As the TPU compiler writes them.
PROGRAM = """\
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
    assert collectives(PROGRAM) == {"all-reduce": 2, "reduce-scatter": 1}
