import json
import pathlib

import numpy as np
import pytest

from tests.training.runs import finish

PROCESSES = pathlib.Path(__file__).parents[1] / "processes"


@pytest.fixture
def take_the_tour(launch, data_dir, tmp_path):
    """Returns a function that moves runs between devices, and compares them with one that stayed.

    `take_the_tour(task, devices, processes, environment)` trains on one device to the end; on one
    device and then, as `devices` changes the config, on several; and on one device, two
    processes, several devices and one again. `processes` are the config's changes and the
    environment of each process.
    """

    def travel(task, devices, processes, environment):
        def start(legs, environment):
            legs = [json.dumps([str(tmp_path / name), *leg]) for name, *leg in legs]
            return launch(PROCESSES / "tour.py", task, data_dir, *legs, environment=environment)

        one = {"strategy": "one"}
        legs = [("stayed", 0, one), ("out", 10, one), ("out", 0, devices), ("tour", 10, one)]
        finish(start(legs, environment))
        for process in [start([("tour", 20, changes)], own) for changes, own in processes]:
            finish(process)
        finish(start([("tour", 30, devices), ("tour", 0, one)], environment))

        expected = weights(tmp_path / "stayed")
        for name in ("out", "tour"):
            lines = (tmp_path / name / "metrics.csv").read_text().splitlines()
            assert [line.split(",")[0] for line in lines] == ["step", "10", "20", "30", "40"]
            found = weights(tmp_path / name)
            assert found.keys() == expected.keys()
            for path in expected:
                np.testing.assert_allclose(found[path], expected[path], atol=2e-5, err_msg=path)

    return travel


@pytest.fixture
def all_alike(launch, tmp_path):
    """Returns a function that compares the results of `equivalence.py` with those of one device.

    `all_alike(places, environment, place, joined)` trains on one device and then in `places` in
    one process, and together in two in `place`, of which `joined` are the words and the
    environment. It returns the log of the first.
    """

    def compare(places, environment, together, joined):
        commands = [(("one", *places), environment), *joined]
        files = [tmp_path / f"{name}.npz" for name in ("alone", "a", "b")]
        logs = []
        # The first has the machine for itself.
        for numbers in ((0,), (1, 2)):
            started = []
            for file, (words, own) in ((files[number], commands[number]) for number in numbers):
                script = PROCESSES / "equivalence.py"
                started.append(launch(script, file, *words, environment=own))
            logs += [process.communicate(timeout=1500)[0] for process in started]
            assert not any(process.returncode for process in started), "\n".join(logs)
        alone, worker, other = map(np.load, files)
        for name in worker.files:
            np.testing.assert_array_equal(worker[name], other[name])
        for case in ("sgd", "adamw", "random", "frozen", "lora"):
            keys = ("losses", "count", "evaluation", "weights", "rate")
            expected = {key: alone[f"one/{case}/{key}"] for key in keys}
            assert expected["count"] == 53
            assert expected["losses"][-1] < expected["losses"][0]
            for results, place in (*((alone, each) for each in places), (worker, together)):
                for key, value in expected.items():
                    name = f"{place}/{case}/{key}"
                    np.testing.assert_allclose(results[name], value, atol=1e-5, err_msg=name)
        return logs[0]

    return compare


def weights(workdir):
    import keras

    from keras_vit.training.evaluators.load_keras_model import load_model

    model = load_model(workdir).model
    return {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights}
