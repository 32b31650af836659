"""The training step, compiled ahead of time for TPUs."""

import functools
import itertools
import math
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Literal

from benchmarks.harness.compiled_program import OPTIMIZER, chip_of, rematerialized
from benchmarks.harness.process import Process, ProcessError
from benchmarks.harness.report import show
from keras_vit.training.errors import TrainingError
from keras_vit.training.io.progress_bar import track
from keras_vit.training.io.quiet_start import import_tensorflow

PRECISION = "mixed_bfloat16"
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


def tpu_compile(
    engine: Literal["tensorflow", "jax"] = "tensorflow",
    model: Sequence[str] = ("ViT-Ti/16",),
    topology: Sequence[str] = ("v5e:2x2",),
    batch_size: int = 128,
    mesh: str = "",
    remat: bool = False,
    accumulation_steps: int = 1,
    against: Literal["none", "vit_jax"] = "none",
    python: str = sys.executable,
) -> None:
    """The training step, compiled ahead of time for TPUs.

    The TPU compiler in libtpu compiles our step (dropout, clipping and the update of the weights
    included) for a topology, without any TPU at hand. That shows whether the step compiles for the
    chip, whether it fits its memory, and what its gradients' sums become. It does not show speed.

    `--engine jax` compiles the program that the JAX engine runs on that slice. `--engine
    tensorflow` compiles not the program that `TPUStrategy` traces, but the same step lowered by
    TensorFlow for one replica, with the all-reduces put in.

    `--against vit_jax` compiles the JAX engine's step without dropout, and that of the original's
    model in Flax beside it, data parallel, with the least time of each at the chip's peaks: of its
    arithmetic, and of what it moves to and from main memory.

    Needs `pip install jax==0.10.2 libtpu==0.0.52` (half a gigabyte), here or, with `--python`, in
    an environment of its own, which for `--engine jax` has keras and ml_collections as well, and
    for `--against` flax and optax.

    Args:
        engine: whose step: tensorflow or jax.
        topology: such as v5e:2x2 or v4:2x2x1.
        batch_size: images per chip.
        mesh: of jax: data=NUMBER,fsdp=NUMBER; an axis that is left out takes what is left.
        remat: of jax: recompute activations.
        accumulation_steps: of jax: micro-batches per step.
        against: vit_jax: the original's step beside ours.
        python: interpreter with jax and libtpu.
    """
    axes = parse_mesh(mesh)
    compiler = functools.partial(run_compiler, python, precision=PRECISION)
    ours = functools.partial(
        compiler,
        "keras_vit",
        mesh=[axes["data"], axes["fsdp"]],
        accumulation_steps=accumulation_steps,
        remat=remat,
        dropout_rate=0.0 if against != "none" else 0.1,
    )
    programs = {"keras_vit": ours}
    if against != "none":
        programs[against] = functools.partial(compiler, against)
    elif engine == "tensorflow":
        programs = {"keras_vit": functools.partial(_compile_tensorflow, python)}
    images = str(batch_size)
    if accumulation_steps > 1:
        images = f"{accumulation_steps} × {batch_size // accumulation_steps}"

    def cells(topology, program, compile_for):
        if against != "none":
            chip = chip_of(topology)
            shown = {"images per chip": batch_size, "program": program}
            return shown | _roofline(chip, compile_for(images=batch_size))
        shown = {"mesh": _mesh(axes, topology), "images per chip": images + ", remat" * remat}
        return shown | _program(compile_for(images=batch_size))

    rows = []
    for name, slice_, program in track(
        list(itertools.product(model, topology, programs)), "compiling"
    ):
        compile_for = functools.partial(programs[program], model=name, topology=slice_)
        rows.append({"model": name, "topology": slice_} | cells(slice_, program, compile_for))
        print(*rows[-1].values(), sep=", ", file=sys.stderr)
    show(rows)


def parse_mesh(text: str) -> dict[str, int]:
    """Returns the axes that "data=…,fsdp=…" names; one that is left out takes what is left."""
    axes = dict(part.split("=") for part in text.split(",")) if text else {"fsdp": "1"}
    if not set(axes) <= {"data", "fsdp"}:
        raise ValueError(f"Expected data=NUMBER,fsdp=NUMBER. Received: {text}")
    return {"data": -1, "fsdp": 1 if "data" not in axes else -1} | {
        name: int(size) for name, size in axes.items()
    }


def _mesh(axes, topology):
    """Returns the axes of more than one chip, each with its chips."""
    rest = _chips(topology) // abs(math.prod(axes.values()))
    sizes = {axis: rest if size == -1 else size for axis, size in axes.items()}
    return ",".join(f"{axis}={size}" for axis, size in sizes.items() if size != 1) or "data=1"


def _chips(topology):
    return math.prod(map(int, topology.partition(":")[2].split("x")))


def run_compiler(python: str, program: str, **task: Any) -> dict[str, Any]:
    """Returns what a function of `benchmarks.harness.library_compilers` finds.

    `rematerialized` is how often the partitioner logged an involuntary rematerialization.

    Args:
        python: interpreter that has jax and libtpu.
        program: name of the function.
        **task: its arguments.

    Raises:
        TrainingError: if the compiler does not start.
    """
    function = f"benchmarks.harness.library_compilers:{program}"
    try:
        with Process(function, task, python=python, environment=_ENVIRONMENT) as process:
            return process.facts | {"rematerialized": rematerialized("".join(process.messages()))}
    except (ProcessError, OSError) as error:
        raise TrainingError(
            f"The TPU compiler did not start with {python}: {str(error).splitlines()[-1]}. "
            "Install it with: pip install jax==0.10.2 libtpu==0.0.52"
        ) from error


def _compile_tensorflow(python, model, topology, images):
    """Returns what the compiler finds of a replica's training step, lowered by TensorFlow."""
    tf = import_tensorflow()
    import keras
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    import keras_vit
    from keras_vit.training.engine.tensorflow import TensorFlowStep
    from keras_vit.training.recipes.losses import build_loss
    from keras_vit.training.recipes.optimizers import build_optimizer

    replicas = _chips(topology)
    group = tf.constant([list(range(replicas))], tf.int32)

    class Steps(TensorFlowStep):
        def sum_over_replicas(self, arrays):
            return [
                gen_xla_ops.xla_all_reduce(
                    input=array, group_assignment=group, reduce_op="Add", mode="CrossReplica"
                )
                for array in arrays
            ]

    keras.config.set_dtype_policy(PRECISION)
    built = keras_vit.create_model(model, num_classes=1000, dropout_rate=0.1)
    optimizer = build_optimizer(OPTIMIZER)
    optimizer.build(built.trainable_variables)
    loss, strategy = build_loss("softmax"), tf.distribute.get_strategy()
    steps = Steps(strategy, built, optimizer, loss, batch_size=images * replicas)
    batch = tf.zeros((images, *built.input_shape[1:])), tf.zeros((images, 1000))
    update = tf.function(steps.replica_update, jit_compile=True)
    compiler_ir = update.experimental_get_compiler_ir(*batch, tf.zeros([2]))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "step.stablehlo"
        file.write_bytes(compiler_ir(stage="stablehlo_serialized"))
        task = {"file": str(file), "topology": topology, "replicas": replicas}
        return run_compiler(python, "stablehlo", **task)


def _program(found):
    """Returns the cells of a program by itself."""
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


def _roofline(chip, found):
    """Returns the cells of a program beside another, with the least times of the chip."""
    if "error" in found:
        return {"TFLOP": found["error"]}
    return {
        "TFLOP": f"{found['flops'] / 1e12:.2f}",
        "counted": f"{found['bytes'] / 1e9:.1f} GB",
        "HBM": f"{found['hbm_bytes'] / 1e9:.1f} GB",
        "temporaries": f"{found['temporaries'] / 1e9:.2f} GB",
        "arithmetic": f"{found['flops'] / chip.flops * 1e3:.1f} ms",
        "traffic": f"{found['hbm_bytes'] / chip.bandwidth * 1e3:.1f} ms",
    }
