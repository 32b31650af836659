import csv
import json
import pathlib
import random
import signal
import socket
import time

import numpy as np
import pytest

# What a run was trained on, in its `config.json`: ten examples that nobody reads.
DATA = {"class_names": None, "train": {"examples": 10, "digest": "0" * 32}, "eval": None}
# How often runs are killed: some in `make test-all`, all in `make test-kills`.
KILLS = [pytest.param(2, marks=pytest.mark.long), pytest.param(10, marks=pytest.mark.slow)]


def write_run_config(folder, **config):
    (folder / "config.json").write_text(json.dumps({"data": DATA, **config}))


def read_csv(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def rows(workdir):
    """Returns the rows of `metrics.csv` without speed, the one column that two runs differ in."""
    return [{**row, "images_per_second": ""} for row in read_csv(workdir / "metrics.csv")]


def column(workdir, name):
    return np.array([float(row[name]) for row in rows(workdir) if row[name]])


def final_state(workdir):
    from keras_vit.training.engine import checkpoints

    folder = pathlib.Path(workdir) / "checkpoints"
    state = checkpoints.read(folder, checkpoints.steps(folder)[-1])
    return {name: array.read() for name, array in state.items()}


def assert_same(workdir, other):
    np.testing.assert_equal(final_state(workdir), final_state(other))


def new_addresses(count):
    servers = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()
    return addresses


def cluster(workers):
    """Returns the environment of each worker of a job of TensorFlow's."""
    job = {"cluster": {"worker": new_addresses(workers)}}
    tasks = [{"type": "worker", "index": index} for index in range(workers)]
    return [{"TF_CONFIG": json.dumps(job | {"task": task})} for task in tasks]


def wait_for(workdir, step, *processes):
    end = time.monotonic() + 1500
    while not (workdir / "checkpoints" / f"checkpoint-{step}").exists():
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.002)


def finish(*processes, status=0):
    """Waits for processes and returns the last one's last line, after checking how each ended."""
    for process in processes:
        output, _ = process.communicate(timeout=1500)
        assert process.returncode == status, output
    return output.strip().splitlines()[-1] if output.strip() else ""


def stop(workdir, step, *processes):
    """Stops a job after a checkpoint as a scheduler does, and returns the step that it ends at."""
    wait_for(workdir, step, *processes)
    processes[-1].send_signal(signal.SIGTERM)
    (message,) = {finish(process, status=128 + signal.SIGTERM) for process in processes}
    assert message.startswith("Stopped on request after step ")
    stopped = int(message.split("step ")[1].split()[0])
    assert (workdir / "checkpoints" / f"checkpoint-{stopped}").exists()
    return stopped


def kill_at_random(start, workdir, kills):
    """Starts a run of 200 steps so many times, and kills it at a random moment."""
    rng = random.Random(kills)
    for number in range(kills):
        process = start(workdir)
        first = 10 * (1 + 15 * number // kills)
        wait_for(workdir, rng.randrange(first, first + 20, 10), process)
        time.sleep(rng.uniform(0.0, 0.05))
        process.kill()
        assert process.wait() == -signal.SIGKILL and not (workdir / "model.keras").exists()
