"""Compiles a StableHLO file for a TPU topology: `stablehlo_compiler.py FILE TOPOLOGY REPLICAS`.

A program of its own, because TensorFlow and libtpu do not share a process well. Prints JSON. It
reaches into jax, whose version is therefore fixed.
"""

import json
import sys
import time
from typing import Any

import jax
import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax.experimental import topologies

from benchmarks.harness.compiled_program import describe, reason


def parse(serialized: bytes) -> ir.Module:
    """Returns the module without `mhlo.copy`, an identity that this compiler does not know."""
    module = ir.Module.parse(serialized)
    copies = []

    def collect(operation):
        if operation.operation.name == "mhlo.copy":
            copies.append(operation.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for copy in copies:
        copy.result.replace_all_uses_with(copy.operands[0])
        copy.erase()
    return module


def main(file: str, topology: str, replicas: int) -> None:
    """Prints the `device`, the `seconds` of compiling, and what `describe` finds or the `error`."""
    known = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    devices: list[Any] = known.devices[:replicas]
    options = compiler.get_compile_options(
        num_replicas=replicas,
        num_partitions=1,
        device_assignment=np.array([[device.id] for device in devices]),
    )
    found = {"device": devices[0].device_kind}
    with open(file, "rb") as stream, mlir.make_ir_context():
        module = parse(stream.read())
        start = time.monotonic()
        try:
            program = devices[0].client.compile(
                module, xla_client.DeviceList(tuple(devices)), options
            )
        except jax.errors.JaxRuntimeError as error:
            program = None
            found["error"] = reason(error)
        found["seconds"] = time.monotonic() - start
    if program is not None:
        cost, memory = program.cost_analysis(), program.get_compiled_memory_stats()
        found |= describe(cost, memory, program.hlo_modules()[0].to_string())
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
