"""The training step, compiled ahead of time for TPUs.

The TPU compiler in libtpu compiles our step (dropout, clipping and the update of the weights
included) for a topology, without any TPU at hand. That shows whether the step compiles for the
chip, whether it fits its memory, and what its gradients' sums become. It does not show speed.

`--engine jax` compiles the program that the JAX engine runs on that slice. `--engine
tensorflow` compiles not the program that `TPUStrategy` traces, but the same step lowered by
TensorFlow for one replica, with the all-reduces put in.

`--against vit_jax` compiles the JAX engine's step without dropout, and that of the original's
model in Flax beside it, data parallel.

Needs `pip install jax==0.10.2 libtpu==0.0.52` (half a gigabyte), and for `--against` flax and
optax.
"""

import argparse
import itertools
import math
import pathlib
import re
import sys
import tempfile
from typing import Any

from benchmarks.harness.command_line import show
from benchmarks.harness.process import Process, ProcessError
from keras_vit.training.command_line.options import CommandParser, list_of
from keras_vit.training.errors import TrainingError
from keras_vit.training.io.progress_bar import track
from keras_vit.training.io.quiet_start import import_tensorflow

# Settings of the compiled steps.
PRECISION = "mixed_bfloat16"
OPTIMIZER = {"total_steps": 1000, "warmup_steps": 10, "weight_decay": 0.1, "clip_norm": 1.0}
DROPOUT_RATE = 0.1
_ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    # No TPU is shared: several may compile at once.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    # Without these libtpu asks a metadata server, for minutes, what host this is.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}
# The partitioner logs it where it finds no way between two layouts but whole arrays.
REMATERIALIZED = "Involuntary full rematerialization"
_COLLECTIVE = re.compile(
    r"= .* (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
# Messages of a compiler that has finished, and of one that does not start.
_REFUSAL = re.compile(
    r"Used ([\d.]+\w) of ([\d.]+\w) hbm"
    r"|HLO temporaries \(([\d.]+\w)\) exceeds available HBM \(([\d.]+\w)\)"
)


def add_options(parser: CommandParser) -> None:
    engines = ("tensorflow", "jax")
    text = "whose step: tensorflow or jax"
    parser.add_argument("--engine", choices=engines, default="tensorflow", help=text)
    for name, default, text in (
        ("--model", "ViT-Ti/16", "names, for example ViT-Ti/16"),
        ("--topology", "v5e:2x2", "such as v5e:2x2 or v4:2x2x1"),
    ):
        parser.add_argument(name, type=list_of(str), default=[default], help=text)
    for name, default, text in (
        ("--batch_size", 128, "images per chip"),
        ("--data", -1, "of jax: chips along this axis of the mesh; -1 takes what is left"),
        ("--fsdp", 1, "of jax: the same of the other axis"),
        ("--accumulation_steps", 1, "of jax: micro-batches per step"),
    ):
        parser.add_argument(name, type=int, default=default, help=text)
    parser.add_argument("--remat", action="store_true", help="of jax: recompute activations")
    text = "vit_jax: the original's step beside ours"
    parser.add_argument("--against", choices=("none", "vit_jax"), default="none", help=text)


def run(options: argparse.Namespace) -> None:
    compared = options.against != "none"
    programs = ["keras_vit", options.against] if compared else ["keras_vit"]
    of_jax = {name: getattr(options, name) for name in ("accumulation_steps", "remat")}
    of_jax["dropout_rate"] = 0.0 if compared else DROPOUT_RATE
    mesh, parts = (options.data, options.fsdp), options.accumulation_steps
    images = f"{parts} × {options.batch_size // parts}" if parts > 1 else str(options.batch_size)
    rows = []
    cells = list(itertools.product(options.model, options.topology, programs))
    for name, slice_, program in track(cells, "compiling"):
        task = {"model": name, "topology": slice_, "images": options.batch_size}
        if program == options.against:
            found = run_compiler(program, **task)
        elif options.engine == "tensorflow" and not compared:
            found = _compile_tensorflow(**task)
        else:
            found = run_compiler(program, **task, mesh=[*mesh], **of_jax)
        row = {
            "model": name,
            "topology": slice_,
            "program": program,
            "mesh": _mesh(mesh, slice_),
            "images per chip": images + ", remat" * options.remat,
            **_cells(found),
        }
        rows.append(row)
        print(*row.values(), sep=", ", file=sys.stderr)
    show(rows)


def _mesh(mesh, topology):
    """Returns the axes of more than one chip, each with its chips."""
    rest = _chips(topology) // abs(math.prod(mesh))
    sizes = zip(("data", "fsdp"), (rest if size == -1 else size for size in mesh), strict=True)
    return ",".join(f"{axis}={size}" for axis, size in sizes if size != 1) or "data=1"


def _chips(topology):
    return math.prod(map(int, topology.partition(":")[2].split("x")))


def run_compiler(program: str, **task: Any) -> dict[str, Any]:
    """Returns what a function of `benchmarks.train_steps_for_tpu_compile` finds.

    `rematerialized` is how often the partitioner logged an involuntary rematerialization. Raises
    `TrainingError` if the compiler does not start.
    """
    function = f"benchmarks.train_steps_for_tpu_compile:{program}"
    try:
        with Process(function, task, environment=_ENVIRONMENT) as process:
            log = "".join(process.messages())
            return process.facts | {"rematerialized": log.count(REMATERIALIZED)}
    except ProcessError as error:
        raise TrainingError(
            f"The TPU compiler did not start: {str(error).splitlines()[-1]}. Install it with: "
            "pip install jax==0.10.2 libtpu==0.0.52"
        ) from error


def _compile_tensorflow(model, topology, images):
    """Returns what the compiler finds of a replica's training step, lowered by TensorFlow."""
    tf = import_tensorflow()
    import keras
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    import keras_vit
    from keras_vit.training.config import schema
    from keras_vit.training.engine.tensorflow import TensorFlowEngine
    from keras_vit.training.engine.update import Objective
    from keras_vit.training.recipes.optimizer import build_optimizer
    from keras_vit.training.tasks import task_of

    replicas = _chips(topology)
    group = tf.constant([list(range(replicas))], tf.int32)

    class Replica(TensorFlowEngine):
        def sum_over_replicas(self, arrays):
            return [
                gen_xla_ops.xla_all_reduce(
                    input=array, group_assignment=group, reduce_op="Add", mode="CrossReplica"
                )
                for array in arrays
            ]

    keras.config.set_dtype_policy(PRECISION)
    built = keras_vit.create_model(model, num_classes=1000, dropout_rate=DROPOUT_RATE)
    optimizer = build_optimizer(OPTIMIZER)
    config = {"dataset": "none", "batch_size": images * replicas, "total_steps": 1}
    engine = Replica(schema.complete(config))
    engine.build(
        lambda: built,
        lambda _: optimizer,
        lambda _: Objective(task_of(engine.config).losses(engine.config, None)),
        lambda images: images,
    )
    batch = {"image": tf.zeros((images, *built.input_shape[1:])), "label": tf.zeros((images, 1000))}
    update = tf.function(engine.replica_update, jit_compile=True)
    compiler_ir = update.experimental_get_compiler_ir(batch, tf.zeros([2]))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "step.stablehlo"
        file.write_bytes(compiler_ir(stage="stablehlo_serialized"))
        return run_compiler("stablehlo", file=str(file), topology=topology, replicas=replicas)


def _cells(found):
    """Returns the cells of a program."""
    cells = {"compiled in": f"{found['seconds']:.0f} s"}
    if "error" in found:
        return cells | {"TFLOP": found["error"]}
    exchanged = found["collectives"] | {"rematerialized": found["rematerialized"]}
    return cells | {
        "TFLOP": f"{found['flops'] / 1e12:.2f}",
        "counted": f"{found['bytes'] / 1e9:.1f} GB",
        "arguments": f"{found['arguments'] / 1e9:.2f} GB",
        "temporaries": f"{found['temporaries'] / 1e9:.2f} GB",
        "collectives": ", ".join(f"{count} {name}" for name, count in exchanged.items() if count),
    }


def collectives(text: str) -> dict[str, int]:
    """Returns how many collectives of each kind a program has.

    A TPU's program may repeat one in several fusions, under the same channel, and writes a
    reduce-scatter as a fusion around an all-reduce.
    """
    channels: dict[str, set[str]] = {}
    computation = ""
    for line in text.splitlines():
        if line.endswith("{"):
            computation = line
        elif found := _COLLECTIVE.search(line):
            name = "reduce-scatter" if "all-reduce-scatter" in computation else found[1]
            channel = re.search(r"channel_id=\d+", line)
            channels.setdefault(name, set()).add(channel[0] if channel else line)
    return {name: len(found) for name, found in sorted(channels.items())}


def reason(error: Exception) -> str:
    """Returns what a compiler's error says on memory, or how it starts."""
    match = _REFUSAL.search(str(error))
    if not match:
        return str(error).split("\n", 1)[0][:120]
    used, available = filter(None, match.groups())
    return f"out of memory: used {used} of {available}"
