"""What is asked of the compiler, and what is printed of its answers."""

import pytest

from benchmarks import tpu_compile
from benchmarks.__main__ import main

PROGRAM = {
    "seconds": 61.0,
    "flops": 1e12,
    "bytes": 2e9,
    "hbm_bytes": 1e9,
    "arguments": 1e9,
    "temporaries": 3e9,
    "collectives": {"all-reduce": 4},
    "rematerialized": 0,
}


@pytest.fixture
def rows(monkeypatch, cells):
    """Returns the cells that a command prints with a compiler in the place of libtpu's."""

    def run(compiler, *options):
        monkeypatch.setattr(tpu_compile, "run_compiler", compiler)
        words = ["tpu_compile", "--engine", "jax", "--topology", "v5e:1x1", *options]
        assert main(words) == 0
        return cells()[2:]

    return run


@pytest.mark.parametrize(
    ("count", "cell"), [(0, "4 all-reduce"), (3, "4 all-reduce, 3 rematerialized")]
)
def test_involuntary_rematerializations_are_in_the_table(rows, count, cell):
    [row] = rows(lambda *arguments, **task: PROGRAM | {"rematerialized": count})
    assert row[-1] == cell


def test_each_peak_bounds_alone(rows):
    found = PROGRAM | {"flops": 197e12, "hbm_bytes": 2 * 819e9}
    ours, _ = rows(lambda *arguments, **task: found, "--against", "vit_jax")
    assert ours[-2:] == ["1000.0 ms", "2000.0 ms"]
