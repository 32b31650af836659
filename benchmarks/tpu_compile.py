"""`python -m benchmarks tpu_compile`: the training step, compiled ahead of time for TPUs.

The TPU compiler in libtpu compiles our step (dropout, clipping and the update of the weights
included) for a topology, without any TPU at hand. That shows whether the step compiles for the
chip, whether it fits its memory, and what its gradients' sums become. It does not show speed.

`--engine jax` compiles the program that the JAX engine runs on that slice, on the mesh
`--mesh data=…,fsdp=…`. `--engine tensorflow` compiles not the program that `TPUStrategy` traces,
but the same step lowered by TensorFlow for one replica, with the all-reduces put in.

`--against vit_jax` compiles the same step without dropout, data parallel, and that of the
original's model in Flax beside it, with the least time of each at the chip's peaks: of its
arithmetic, and of what it moves to and from main memory.

`--largest_batch` looks for the images per chip that just fit, from `--batch_size` on in steps of
so many, for the step with and without remat, and with `--against` for the original's, which has
no remat.

Needs `pip install jax==0.10.2 libtpu==0.0.52` (half a gigabyte), here or, with `--python`, in
an environment of its own, which for `--engine jax` has keras and ml_collections as well, and
for `--against` flax and optax.
"""

import functools
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import options, roofline
from benchmarks.harness.compiled_program import rematerialized
from benchmarks.harness.largest_batch import largest_batch
from benchmarks.harness.progress import track
from training.reporting.table import Table

HARNESS = pathlib.Path(__file__).parent / "harness"


def lower(
    name: str, batch_size: int, replicas: int, precision: str, file: str | os.PathLike
) -> None:
    """Writes the StableHLO of one training step of a replica.

    Args:
        name: of the model.
        batch_size: images per replica.
        replicas: how many sum their gradients.
        precision: "float32" or "mixed_bfloat16".
        file: path of the output.
    """
    import keras
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    import keras_vit
    from training.engines.tensorflow.train_step import TrainSteps
    from training.recipes.losses import build_loss
    from training.recipes.optimizers import build_optimizer

    group = tf.constant([list(range(replicas))], tf.int32)

    class Steps(TrainSteps):
        def sum_over_replicas(self, tensors):
            return [
                gen_xla_ops.xla_all_reduce(
                    input=tensor, group_assignment=group, reduce_op="Add", mode="CrossReplica"
                )
                for tensor in tensors
            ]

    keras.config.set_dtype_policy(precision)
    model = keras_vit.create_model(name, num_classes=1000, dropout_rate=0.1)
    optimizer = build_optimizer(
        {"total_steps": 1000, "warmup_steps": 10, "weight_decay": 0.1, "clip_norm": 1.0}
    )
    optimizer.build(model.trainable_variables)
    steps = Steps(
        tf.distribute.get_strategy(),
        model,
        optimizer,
        build_loss("softmax"),
        batch_size=batch_size * replicas,
    )
    images = tf.zeros((batch_size, *model.input_shape[1:]))
    labels = tf.zeros((batch_size, 1000))
    update = tf.function(steps.update, jit_compile=True)
    compiler_ir = update.experimental_get_compiler_ir(images, labels, tf.zeros([2]))
    pathlib.Path(file).write_bytes(compiler_ir(stage="stablehlo_serialized"))


def run_compiler(python: str, program: str, *arguments: object) -> dict[str, Any]:
    """Returns what a program of the harness, which calls the TPU compiler, prints.

    `rematerialized` is how often the partitioner logged an involuntary rematerialization.

    Args:
        python: interpreter that has jax and libtpu.
        program: name in `benchmarks/harness`.
        *arguments: of the program.

    Raises:
        RuntimeError: if the compiler does not start.
    """
    root = str(HARNESS.parents[1])
    result = subprocess.run(
        [python, HARNESS / program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        # Without these libtpu asks a metadata server, for minutes, what host this is.
        env=os.environ
        | {
            "KERAS_BACKEND": "jax",
            "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            # No TPU is shared: several may compile at once.
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-4",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
        },
    )
    lines = result.stdout.strip().splitlines()
    if result.returncode or not lines:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(
            f"The TPU compiler did not start with {python}: {last}. "
            "Install it with: pip install jax==0.10.2 libtpu==0.0.52"
        )
    return json.loads(lines[-1]) | {"rematerialized": rematerialized(result.stderr)}


def parse_mesh(text: str) -> dict[str, int]:
    """Returns the axes that "data=…,fsdp=…" names; one that is left out takes what is left."""
    axes = dict(part.split("=") for part in text.split(",")) if text else {"fsdp": "1"}
    if not set(axes) <= {"data", "fsdp"}:
        raise ValueError(f"Expected data=NUMBER,fsdp=NUMBER. Received: {text}")
    return {"data": -1, "fsdp": 1 if "data" not in axes else -1} | {
        name: int(size) for name, size in axes.items()
    }


def main(argv: Sequence[str]) -> int:
    """Prints FLOPs, memory and collectives of the step of every model on every topology."""
    parser = options.parser("tpu_compile", __doc__, batch_size=128)
    parser.add_argument("--engine", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--model", nargs="+", default=["ViT-Ti/16"])
    parser.add_argument("--topology", nargs="+", default=["v5e:2x2"], help="such as v4:2x2x1")
    parser.add_argument(
        "--mesh", type=parse_mesh, default=parse_mesh(""), help="of jax: data=NUMBER,fsdp=NUMBER"
    )
    parser.add_argument("--remat", action="store_true", help="of jax: recompute activations")
    parser.add_argument(
        "--accumulation_steps", type=int, default=1, help="of jax: micro-batches per step"
    )
    parser.add_argument("--against", choices=["vit_jax"], help="the original's step beside ours")
    parser.add_argument(
        "--largest_batch",
        type=int,
        nargs="?",
        const=8,
        metavar="STEP",
        help="look for the most images that fit a chip, in steps of so many",
    )
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--python", default=sys.executable, help="interpreter with jax and libtpu")
    chosen = parser.parse_args(argv)

    pairs = list(itertools.product(chosen.model, chosen.topology))
    table = _largest if chosen.largest_batch else _comparison if chosen.against else _slices
    try:
        print(table(track(pairs, " for ".join), chosen).markdown())
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _slices(pairs, chosen):
    """Returns the table of what a step is on every topology."""
    rows = []
    for model, topology in pairs:
        rows.append([model, topology, *_asked(chosen), *_cells(_compile(model, topology, chosen))])
        print(*rows[-1], sep=", ", file=sys.stderr)
    columns = ["model", "topology", "mesh", "images per chip", "compiled in", "TFLOP", "counted"]
    return Table([*columns, "arguments", "temporaries", "collectives"], rows)


def _comparison(pairs, chosen):
    """Returns the table of our step and the original's."""
    rows = []
    for model, topology in pairs:
        for name, found in [
            ("keras_vit", _ours(model, topology, chosen, chosen.batch_size, chosen.remat)),
            (chosen.against, _original(model, topology, chosen, chosen.batch_size)),
        ]:
            rows.append([model, topology, chosen.batch_size, name, *_roofline(topology, found)])
            print(*rows[-1], sep=", ", file=sys.stderr)
    columns = ["model", "topology", "images per chip", "program", "TFLOP", "counted", "HBM"]
    return Table([*columns, "temporaries", "arithmetic", "traffic"], rows)


def _largest(pairs, chosen):
    """Returns the table of the largest batches that fit."""
    programs = {
        "keras_vit": functools.partial(_ours, remat=False),
        **({chosen.against: _original} if chosen.against else {}),
        "keras_vit, remat": functools.partial(_ours, remat=True),
    }
    rows = []
    for (model, topology), (name, compiled) in itertools.product(pairs, programs.items()):

        def compile_for(images, arguments=(model, topology, chosen), name=name, compiled=compiled):
            found = compiled(*arguments, images)
            print(name, images, found, sep=", ", file=sys.stderr)
            return found

        memory = roofline.chip_of(topology).memory
        images, found = largest_batch(compile_for, chosen.batch_size, chosen.largest_batch, memory)
        rows.append([model, topology, name, images, *_fit(images, found)])
    columns = ["model", "topology", "program", "images per chip", "TFLOP per image"]
    return Table([*columns, "arguments", "temporaries"], rows)


def _fit(images, found):
    if not images:
        return [""] * 3
    return [
        f"{found['flops'] / images / 1e12:.4f}",
        f"{found['arguments'] / 1e9:.2f} GB",
        f"{found['temporaries'] / 1e9:.2f} GB",
    ]


def _roofline(topology, found):
    if "error" in found:
        return [found["error"], *[""] * 5]
    arithmetic, traffic = roofline.least_seconds(topology, found["flops"], found["hbm_bytes"])
    return [
        f"{found['flops'] / 1e12:.2f}",
        f"{found['bytes'] / 1e9:.1f} GB",
        f"{found['hbm_bytes'] / 1e9:.1f} GB",
        f"{found['temporaries'] / 1e9:.2f} GB",
        f"{arithmetic * 1e3:.1f} ms",
        f"{traffic * 1e3:.1f} ms",
    ]


def _ours(model, topology, chosen, images, remat):
    mesh = chosen.mesh["data"], chosen.mesh["fsdp"]
    dropout_rate = 0.0 if chosen.against else 0.1
    step = (images, chosen.accumulation_steps, chosen.precision, remat, dropout_rate)
    return run_compiler(chosen.python, "jax_compiler.py", model, topology, *mesh, *step)


def _original(model, topology, chosen, images):
    step = (images, chosen.precision)
    return run_compiler(chosen.python, "flax_compiler.py", model, topology, *step)


def _compile(model, topology, chosen):
    if chosen.engine == "jax":
        return _ours(model, topology, chosen, chosen.batch_size, chosen.remat)
    dimensions = topology.partition(":")[2].split("x")
    replicas = math.prod(int(size) for size in dimensions)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "step.stablehlo"
        lower(model, chosen.batch_size, replicas, chosen.precision, file)
        return run_compiler(chosen.python, "stablehlo_compiler.py", file, topology, replicas)


def _asked(chosen):
    mesh = {name: size for name, size in chosen.mesh.items() if size != 1} or {"data": 1}
    mesh = ",".join(f"{name}={size}" for name, size in mesh.items())
    parts, remat = chosen.accumulation_steps, ", remat" if chosen.remat else ""
    images = chosen.batch_size if parts == 1 else f"{parts} × {chosen.batch_size // parts}"
    return [mesh, f"{images}{remat}"]


def _cells(found):
    seconds = f"{found['seconds']:.0f} s"
    if "error" in found:
        return [seconds, found["error"], *[""] * 4]
    exchanged = found["collectives"] | {"rematerialized": found["rematerialized"]}
    return [
        seconds,
        f"{found['flops'] / 1e12:.2f}",
        f"{found['bytes'] / 1e9:.1f} GB",
        f"{found['arguments'] / 1e9:.2f} GB",
        f"{found['temporaries'] / 1e9:.2f} GB",
        ", ".join(f"{count} {name}" for name, count in exchanged.items() if count),
    ]
