"""What is read from a compiler's messages."""

import pytest

from benchmarks.harness.compiled_program import reason


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
