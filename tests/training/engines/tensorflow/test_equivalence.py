"""One device, two devices and two processes compute the same training."""

import pathlib

import numpy as np
import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "equivalence.py"


@pytest.mark.long
def test_strategies_agree(launch, cluster, tmp_path):
    commands = [(("one", "mirrored"), {})]
    commands += [(("multiworker",), environment) for environment in cluster(2)]
    files = [tmp_path / f"{index}.npz" for index in range(len(commands))]
    processes = [
        launch(SCRIPT, file, *names, environment=environment)
        for file, (names, environment) in zip(files, commands, strict=True)
    ]
    for process in processes:
        output, _ = process.communicate(timeout=500)
        assert process.returncode == 0, output

    local, worker, other = (np.load(file) for file in files)
    assert local["one/replicas"] == 1
    assert local["mirrored/replicas"] == worker["multiworker/replicas"] == 2
    for name in worker.files:
        np.testing.assert_array_equal(worker[name], other[name])

    for case in ("sgd", "adamw", "random"):
        expected = {key: local[f"one/{case}/{key}"] for key in ("losses", "count", "evaluation")}
        assert expected["count"] == 53
        assert expected["losses"][-1] < expected["losses"][0]
        for results, name in ((local, "mirrored"), (worker, "multiworker")):
            prefix = f"{name}/{case}"
            np.testing.assert_allclose(results[f"{prefix}/losses"], expected["losses"], atol=1e-5)
            np.testing.assert_allclose(
                results[f"{prefix}/evaluation"], expected["evaluation"], atol=1e-5
            )
            assert results[f"{prefix}/count"] == 53
    # Key biases have no gradient but rounding, which Adam turns into steps: SGD only.
    for case in ("sgd", "random"):
        expected = local[f"one/{case}/weights"]
        np.testing.assert_allclose(local[f"mirrored/{case}/weights"], expected, atol=1e-5)
        np.testing.assert_allclose(worker[f"multiworker/{case}/weights"], expected, atol=1e-5)

    # A checkpoint of one device resumes on two, and the other way round.
    for case in ("sgd", "random"):
        for moved in ("moved_up", "moved_down"):
            expected = local[f"one/{case}/losses"][10:]
            np.testing.assert_allclose(local[f"{moved}/{case}"], expected, atol=1e-5)
