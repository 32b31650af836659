import json

import numpy as np
import pytest

from tests.training.runs import column, finish


@pytest.fixture
def take_the_tour(launch, data_dir, tmp_path):
    """Returns a function that compares runs that move between devices with one that stays on one.

    `devices` changes the config to several; `processes` are such changes, and the environment, of
    each of two processes.
    """

    def start(task, environment, *legs):
        legs = [json.dumps([str(tmp_path / name), *leg]) for name, *leg in legs]
        return launch("tour", task, data_dir, *legs, environment=environment)

    def travel(task, devices, processes, environment):
        one = {"strategy": "one"}
        legs = [("stayed", 0, one), ("out", 10, one, str(tmp_path / "tour")), ("out", 0, devices)]
        finish(start(task, environment, *legs))
        finish(*(start(task, own, ("tour", 20, changes)) for changes, own in processes))
        finish(start(task, environment, ("tour", 30, devices), ("tour", 0, one)))

        expected = weights(tmp_path / "stayed")
        for name in ("out", "tour"):
            assert column(tmp_path / name, "step").tolist() == [10, 20, 30, 40]
            for metric in ("loss", "gradient_norm"):
                one, other = (column(tmp_path / run, metric) for run in (name, "stayed"))
                np.testing.assert_allclose(one, other, rtol=1e-4, err_msg=metric)
            found = weights(tmp_path / name)
            assert found.keys() == expected.keys()
            for path in expected:
                np.testing.assert_allclose(found[path], expected[path], atol=2e-5, err_msg=path)

    return travel


@pytest.fixture
def all_alike(launch, tmp_path):
    """Returns a function that compares the results of `equivalence.py` with those of one device.

    These are of `places`, in one process, whose log is returned, and of the place `together`, in
    two, of which `joined` are the words and the environment.
    """

    def compare(places, environment, together, joined):
        logs, results = [], []
        # The first has the machine for itself.
        for commands in ([(("one", *places), environment)], joined):
            files = [tmp_path / f"{len(results)}{number}.npz" for number in range(len(commands))]
            jobs = [("equivalence", file, *job) for file, job in zip(files, commands, strict=True)]
            started = [launch(*job, *words, environment=own) for *job, words, own in jobs]
            logs += [process.communicate(timeout=1500)[0] for process in started]
            assert not any(process.returncode for process in started), "\n".join(logs)
            results += map(np.load, files)
        alone, worker, other = results
        for name in worker.files:
            np.testing.assert_array_equal(worker[name], other[name])
        for case in ("sgd", "adamw", "random", "frozen", "lora", "distilled"):
            keys = ("losses", "count", "evaluation", "weights", "rate")
            expected = {key: alone[f"one/{case}/{key}"] for key in keys}
            assert expected["count"] == 53 and expected["losses"][-1] < expected["losses"][0]
            for results, place in (*((alone, each) for each in places), (worker, together)):
                for key, value in expected.items():
                    name = f"{place}/{case}/{key}"
                    np.testing.assert_allclose(results[name], value, 1e-4, 1e-5, err_msg=name)
        return logs[0]

    return compare


def weights(workdir):
    from keras_vit.training.inference.open_model import load_model

    return {weight.path: np.array(weight) for weight in load_model(workdir).model.weights}
