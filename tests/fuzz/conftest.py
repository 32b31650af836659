"""Hostile input by the thousand: mutations with seeds that can be repeated, counted at the end.

`make test` runs a few of each with a fixed seed; `make test-fuzz` runs many with a new one, which
it prints: `FUZZ_SEED=… FUZZ=…` in the environment repeat them.
"""

import collections
import json
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys

import pytest

from keras_vit.training.errors import TrainingError
from tests.training.conftest import ROOT, data_dir, no_room, process_environment, tiny  # noqa: F401

HERE = pathlib.Path(__file__).parent
SEED = int(os.environ.get("FUZZ_SEED", "0"))
# How many times the mutations that `make test` runs.
FACTOR = float(os.environ.get("FUZZ", "0.05"))
# What Python and a runtime take for themselves, beside what a file asks of them.
SLACK = 96 * 2**20

_INTEGERS = (0, 1, -1, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, -(2**63))
_counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)


def mutate(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(data)) if data else 0
        length = rng.choice((1, 2, 4, 16, rng.randrange(1, 1 + max(1, len(data) // 4))))
        match rng.randrange(8):
            case 0 if data:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                data[place : place + length] = rng.randbytes(length)
            case 2:
                del data[place:]
            case 3:
                del data[place : place + length]
            case 4:
                data[place:place] = data[place : place + length]
            case 5:
                data[place : place + length] = bytes(length)
            case 6:
                value = struct.pack("<q", rng.choice(_INTEGERS))[: rng.choice((2, 4, 8))]
                data[place : place + len(value)] = value[:: rng.choice((1, -1))]
            case _:
                if digits := [i for i, byte in enumerate(data[:4096]) if 48 <= byte < 58]:
                    place, number = rng.choice(digits), str(rng.choice(_INTEGERS)).encode()
                    data[place : place + rng.choice((0, 1))] = number
    return bytes(data)


def times(count):
    return max(1, int(count * FACTOR))


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tally(name, outcome):
    _counts[name].update([outcome])


@pytest.fixture
def attack():
    """Returns a function that reads mutations, and checks how that ends.

    `attack(name, count, content, read)` calls `read` with `content`, which has to succeed, and
    with `count` mutations of it (times the lane's factor), which may succeed, or raise with a
    message what a command prints as one line; memory may grow by twice `size` and some slack.
    """

    def run(name, count, content, read, *errors, size=0):
        counter = _counts[name]
        read(content)
        for number in range(times(count)):
            rng = random.Random(f"{SEED}/{name}/{number}")
            changed = mutate(rng, content)
            before = peak_memory()
            try:
                read(changed)
                counter["read"] += 1
            except (ValueError, OSError, TrainingError, *errors) as error:
                assert str(error).strip(), f"{type(error)} says nothing: {name} {SEED} {number}"
                counter["refused"] += 1
            except BaseException:
                print(f"FUZZ_SEED={SEED}: mutation {number} of {name}")
                raise
            grown = peak_memory() - before
            assert grown <= 2 * max(len(changed), size) + SLACK, (name, SEED, number, grown)

    return run


@pytest.fixture(scope="session")
def file_faults(tmp_path_factory):
    if sys.platform != "linux" or not shutil.which("cc"):
        pytest.skip("needs Linux and a compiler of C")
    library = tmp_path_factory.mktemp("file_faults") / "file_faults.so"
    compiler = ["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library]
    subprocess.run([*compiler, HERE / "file_faults.c", "-ldl"], check=True)
    return library


@pytest.fixture
def faulty(file_faults, tmp_path):
    """Returns a function that starts `faulty_process.py`, in an environment, to import modules.

    What that returns runs `main` of a module once: (folder, fault, number, module, arguments) ->
    exit status and output. Faults in the folder are "kill", "fail", "slow" and "none".
    """
    processes, log = [], tmp_path / "output.txt"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def start(environment, *modules):
        command = [sys.executable, HERE / "faulty_process.py", *modules]
        environment = process_environment() | {"LD_PRELOAD": str(file_faults), **environment}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)
        processes.append(process)

        def run(folder, fault, number, module, arguments):
            job = [str(folder), fault, number, str(log), module, arguments]
            print(json.dumps(job), file=process.stdin, flush=True)
            return int(process.stdout.readline()), log.read_text()

        return run

    yield start
    for process in processes:
        process.communicate()


def pytest_terminal_summary(terminalreporter):
    if not _counts:
        return
    write = terminalreporter.write_line
    write(f"FUZZ_SEED={SEED} FUZZ={FACTOR:g}")
    _counts["all"] = sum(_counts.values(), collections.Counter())
    for name, counter in _counts.items():
        write(f"{name:<28}{counter['read']:>10} read {counter['refused']:>10} refused")
