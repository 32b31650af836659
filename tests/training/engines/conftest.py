import json
import pathlib

import numpy as np
import pytest

TOUR = pathlib.Path(__file__).parents[1] / "processes" / "tour.py"


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
            return launch(TOUR, task, data_dir, *legs, environment=environment)

        def end(*started):
            for process in started:
                output, _ = process.communicate(timeout=1500)
                assert process.returncode == 0, output

        one = {"strategy": "one"}
        legs = [("stayed", 0, one), ("out", 10, one), ("out", 0, devices), ("tour", 10, one)]
        end(start(legs, environment))
        end(*(start([("tour", 20, changes)], own) for changes, own in processes))
        end(start([("tour", 30, devices), ("tour", 0, one)], environment))

        expected = weights(tmp_path / "stayed")
        for name in ("out", "tour"):
            lines = (tmp_path / name / "metrics.csv").read_text().splitlines()
            assert [line.split(",")[0] for line in lines] == ["step", "10", "20", "30", "40"]
            found = weights(tmp_path / name)
            assert found.keys() == expected.keys()
            for path in expected:
                np.testing.assert_allclose(found[path], expected[path], atol=2e-5, err_msg=path)

    return travel


def weights(workdir):
    import keras

    from training.evaluators.model_source import load_model

    model = load_model(workdir).model
    return {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights}
