"""Runs images through LiteRT's `CompiledModel`, in a process whose printing can be read.

Which operations a delegate refuses, and why, is only ever printed.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes what a file gives, and prints JSON: whether all of its graph was accelerated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("artifact")
    parser.add_argument("--images", type=pathlib.Path, help="(n, height, width, 3) float32, .npy")
    parser.add_argument("--outputs", type=pathlib.Path, help=".npz file to write")
    parser.add_argument("--gpu", action="store_true", help="in float32, then in its float16")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)

    import numpy as np

    images = np.load(options.images)
    outputs, complete = _run(options.artifact, images, options.gpu)
    results = {"float32": outputs}
    if options.gpu:
        results["float16"], _ = _run(options.artifact, images, gpu=True, float16=True)
    np.savez(options.outputs, **results)
    print(json.dumps({"complete": complete}))


def _run(artifact, images, gpu, float16=False):
    """Returns (outputs, whether all of the graph was accelerated)."""
    import numpy as np
    from ai_edge_litert.compiled_model import CompiledModel, HardwareAccelerator
    from ai_edge_litert.options import CpuOptions, GpuOptions, Options

    accelerators = HardwareAccelerator.CPU
    if gpu:
        accelerators |= HardwareAccelerator.GPU
    settings = Options(
        hardware_accelerators=accelerators,
        cpu_options=CpuOptions(num_threads=1),
        gpu_options=GpuOptions(enforce_f32=not float16) if gpu else None,
    )
    model = CompiledModel.from_file(artifact, options=settings)
    index = model.get_signature_index("serving_default")
    ((_, detail),) = model.get_output_tensor_details("serving_default").items()
    shape = tuple(map(int, detail["shape"]))
    inputs, outputs = model.create_input_buffers(index), model.create_output_buffers(index)
    results = []
    for image in images:
        inputs[0].write(image[None])
        model.run_by_index(index, inputs, outputs)
        results.append(outputs[0].read(int(np.prod(shape)), np.float32).reshape(shape))
    return np.concatenate(results), model.is_fully_accelerated()
