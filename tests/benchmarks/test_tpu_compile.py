"""What is asked of the compiler, and what is printed of its answers."""

import pytest

from benchmarks import tpu_compile

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
def rows(monkeypatch, capsys):
    """Returns the cells that a command prints with a compiler in the place of libtpu's."""

    def run(compiler, *options):
        monkeypatch.setattr(tpu_compile, "run_compiler", compiler)
        assert tpu_compile.main(["--engine", "jax", "--topology", "v5e:1x1", *options]) == 0
        lines = capsys.readouterr().out.splitlines()[2:]
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]

    return run


@pytest.mark.parametrize(
    ("count", "cell"), [(0, "4 all-reduce"), (3, "4 all-reduce, 3 rematerialized")]
)
def test_involuntary_rematerializations_are_in_the_table(rows, count, cell):
    [row] = rows(lambda *arguments: PROGRAM | {"rematerialized": count})
    assert row[-1] == cell


def test_largest_batches_of_ours_and_the_originals(rows):
    def compiler(python, program, model, topology, *arguments):
        assert (model, topology) == ("ViT-Ti/16", "v5e:1x1")
        if program == "flax_compiler.py":
            name, (images, precision) = "vit_jax", arguments
        else:
            *mesh, images, parts, precision, remat, dropout_rate = arguments
            assert (mesh, parts, dropout_rate) == ([-1, 1], 1, 0.0)
            name = "keras_vit, remat" if remat else "keras_vit"
        assert precision == "mixed_bfloat16"
        if (used := 1e9 + NEEDS[name] * images) > 16 * 2**30:
            return {"seconds": 1.0, "error": f"out of memory: used {used / 2**30:.2f}G of 16G"}
        return PROGRAM | {"temporaries": used - 1e9, "flops": 1e11 * images}

    assert rows(compiler, "--largest_batch", "--against", "vit_jax") == [
        ["ViT-Ti/16", "v5e:1x1", "keras_vit", "264", "0.1000", "1.00 GB", "15.84 GB"],
        ["ViT-Ti/16", "v5e:1x1", "vit_jax", "200", "0.1000", "1.00 GB", "16.00 GB"],
        ["ViT-Ti/16", "v5e:1x1", "keras_vit, remat", "536", "0.1000", "1.00 GB", "16.08 GB"],
    ]
