import json
from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit.training.errors import UsageError
from tests.training.runs import column, finish

jax = pytest.importorskip("jax", reason="make test-jax installs it")
from keras_vit.training.engine import jax as engine  # noqa: E402
from keras_vit.training.engine import jax_mesh  # noqa: E402


@pytest.fixture
def said(launch, jax_environment):
    def run(script, *arguments, devices=1):
        # None of JAX is TensorFlow.
        environment = jax_environment(devices) if devices else {"KERAS_BACKEND": "tensorflow"}
        return json.loads(finish(launch(script, *arguments, environment=environment)))

    return run


class Device(SimpleNamespace):
    def __hash__(self):
        return self.id


# In another order than that of the processes, as a topology may have it.
DEVICES = [Device(id=i, process_index=i % 2, platform="cpu") for i in range(8)]


@pytest.mark.rows(
    ((-1, 1), (8, 1)), ((1, -1), (1, 8)), ((2, -1), (2, 4)), ((-1, 2), (4, 2)), ((4, 2), (4, 2))
)
def test_shape(asked, shape):
    grid = jax_mesh.create_mesh(*asked, DEVICES).devices
    assert grid.shape == shape
    # Each process holds consecutive ones.
    assert [device.process_index for device in grid.flat] == [0] * 4 + [1] * 4
    for wrong in ((-1, -1), (0, 1), (3, 1), (-1, 3), (16, 1)):
        with pytest.raises(UsageError, match=rf"Received: config.mesh.data={wrong[0]}, "):
            jax_mesh.create_mesh(*wrong, DEVICES)


@pytest.mark.rows(
    ((768, 3072), (None, "fsdp")),
    ((3072, 768), ("fsdp", None)),
    ((1, 197, 768), (None, None, "fsdp")),
    ((16, 16, 3, 6), ("fsdp", None, None, None)),
    ((3, 5), (None, None)),
    ((768,), (None,)),
    ((), ()),
)
def test_state_sharding(shape, spec):
    assert tuple(jax_mesh.state_sharding(jax_mesh.create_mesh(2, 4, DEVICES), shape).spec) == spec


def test_a_damaged_batch_fails_only_where_it_is_asked_for():
    def two_and_one_that_cannot_be_read():
        for value in range(2):
            yield {"image": np.full(2, value)}
        raise OSError("damaged")

    batches = SimpleNamespace(as_numpy_iterator=two_and_one_that_cannot_be_read)
    sent = engine.DeviceBatches(batches, jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    for value in range(2):
        sent.fill()
        np.testing.assert_array_equal(next(sent)["image"], np.full(2, value))
    sent.fill()
    for _ in range(2):
        with pytest.raises(OSError, match="damaged"):
            next(sent)


def test_masks_and_keras_s_own_loop_are_alike_on_any_mesh(said):
    expected, *others = said("updates", "norms", devices=8).values()
    np.testing.assert_allclose(others, expected, rtol=1e-5)
    losses = said("updates", "fit", devices=8)
    assert losses["alone"][-1] < losses["alone"][0]
    for name in ("data", "model"):
        np.testing.assert_allclose(losses[name], losses["alone"], atol=1e-5)
    errors = said("fit_averages")  # It ends with the averages that start from the weights.
    assert errors.keys() == {"plain", "built", "compiled"} and max(errors.values()) < 1e-5


def test_either_engine_and_any_mesh_reads_a_state(said, tmp_path):
    before = None
    places = [("1x1", 0), ("1x2", 2), ("1x1", 1), ("2x2", 4), ("1x1", 0)]
    for number, (mesh, devices) in enumerate(places):
        found = said("updates", "goes_on", tmp_path, mesh, devices=devices)
        assert found["step"] == number
        if before:
            assert found["numbers"] == {"third": number / 3}
            assert found["restored"] == before["saved"]
        assert found["saved"] != found["restored"]
        before = found


def test_golden_trajectories(launch, jax_environment):
    words = ["-p", "no:xdist", "tests/training/loop/test_golden_trajectories.py"]
    process = launch("-m", "pytest", *words, environment=jax_environment())
    assert "2 passed" in finish(process)


@pytest.mark.long
def test_training_takes_fused_attention_and_a_mesh_divides_it(
    launch, jax_environment, data_dir, tmp_path
):
    quickly = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    process = launch("fused", data_dir, tmp_path, environment=jax_environment(4, quickly))
    found = json.loads(finish(process))
    names = ("forward", "backward")
    assert found["plain"] == {"program": {}, "called": []}
    # One of the two blocks: the last computes the class token alone.
    kernels = {f"__cudnn$fmhaSoftmax{suffix}": 1 for suffix in ("", "Backward")}
    assert found["one"]["program"] == kernels
    for name, batch in (("one", 16), ("mesh", 4)):
        assert sorted(map(tuple, found[name]["called"])) == sorted((each, batch) for each in names)
        for metric in ("loss", "gradient_norm"):
            of_run, plain = (column(tmp_path / run, metric) for run in (name, "plain"))
            np.testing.assert_allclose(of_run, plain, rtol=0.03, err_msg=metric)


def test_which_weights_move_and_how_far(launch, jax_environment, tmp_path):
    finish(launch("transfer", tmp_path, environment=jax_environment()))


@pytest.mark.long
def test_frozen_weights_and_factors_go_between_engines(launch, jax_environment, tmp_path):
    saved = []
    for name, environment in (("tensorflow", {}), ("jax", jax_environment()), ("again", {})):
        (tmp_path / name).mkdir()
        words = ["transfer", tmp_path / name, *saved]
        finish(launch(*words, environment=environment))
        saved = [tmp_path / name]


def test_engines_start_from_the_same_weights_and_agree(launch, tmp_path, data_dir):
    backends = ("tensorflow", "jax")
    places = {name: ("start_weights", tmp_path / name, data_dir) for name in backends}
    finish(*(launch(*places[name], environment={"KERAS_BACKEND": name}) for name in backends))
    ours, other = (np.load(tmp_path / name / "start.npz") for name in backends)
    assert ours.files == other.files
    for name in ours.files:
        if name != "losses":
            np.testing.assert_array_equal(ours[name], other[name], err_msg=name)
    assert ours["losses"][-1] < ours["losses"][0]
    np.testing.assert_allclose(other["losses"], ours["losses"], atol=1e-5)
