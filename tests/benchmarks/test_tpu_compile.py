"""What is asked of the compiler, and what is printed of its answers."""

import pytest

from benchmarks import tpu_compile
from benchmarks.__main__ import main
from keras_vit.training.errors import TrainingError

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
# Bytes per image of each program, and what marks it among a compiler's arguments.
NEEDS = {"keras_vit": 60e6, "vit_jax": 80e6, "keras_vit, remat": 30e6}


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


def test_largest_batches_of_ours_and_the_originals(rows):
    def compiler(python, program, model, topology, images, precision, **task):
        assert (model, topology) == ("ViT-Ti/16", "v5e:1x1")
        remat = task.pop("remat", False)
        if program == "keras_vit":
            assert task == {"mesh": [-1, 1], "accumulation_steps": 1, "dropout_rate": 0.0}
        name = f"{program}, remat" if remat else program
        assert precision == "mixed_bfloat16"
        if (used := 1e9 + NEEDS[name] * images) > 16 * 2**30:
            return {"seconds": 1.0, "error": f"out of memory: used {used / 2**30:.2f}G of 16G"}
        return PROGRAM | {"temporaries": used - 1e9, "flops": 1e11 * images}

    assert rows(compiler, "--largest_batch=8", "--against", "vit_jax") == [
        ["ViT-Ti/16", "v5e:1x1", "keras_vit", "264", "0.1000", "1.00 GB", "15.84 GB"],
        ["ViT-Ti/16", "v5e:1x1", "vit_jax", "200", "0.1000", "1.00 GB", "16.00 GB"],
        ["ViT-Ti/16", "v5e:1x1", "keras_vit, remat", "536", "0.1000", "1.00 GB", "16.08 GB"],
    ]


def test_each_peak_bounds_alone(rows):
    found = PROGRAM | {"flops": 197e12, "hbm_bytes": 2 * 819e9}
    ours, _ = rows(lambda *arguments, **task: found, "--against", "vit_jax")
    assert ours[-2:] == ["1000.0 ms", "2000.0 ms"]


def test_another_failure_is_not_taken_for_a_lack_of_memory():
    with pytest.raises(TrainingError, match="Received: INTERNAL: no such chip"):
        tpu_compile.search(lambda images: {"error": "INTERNAL: no such chip"}, 64, 8)


def test_none_fits():
    assert tpu_compile.search(lambda images: {"error": "out of memory: …"}, 64, 8) == (0, {})
