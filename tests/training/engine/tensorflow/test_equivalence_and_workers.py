import json

import pytest

from tests.training.engine.job_tests import *  # noqa: F403
from tests.training.engine.job_tests import STEPS
from tests.training.runs import cluster, finish

pytestmark = pytest.mark.long


def test_strategies_agree(all_alike):
    workers = [(("multiworker",), environment) for environment in cluster(2)]
    all_alike(["mirrored"], {}, "multiworker", workers)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("task", ["classifier", "masked"])
def test_a_run_goes_on_on_devices_and_workers(task, take_the_tour):
    workers = [({"strategy": "multiworker"}, environment) for environment in cluster(2)]
    take_the_tour(task, {"strategy": "mirrored"}, workers, {})


def test_which_weights_move_and_how_far_in_fine_tuning(launch, tmp_path):
    finish(launch("transfer", tmp_path))


def test_the_step_traces_under_a_real_tpu_strategy_over_fake_devices(launch):
    traced = json.loads(finish(launch("fake_tpu")))
    assert (traced["strategy"], traced["replicas"]) == ("TPUStrategyV2", 2)
    assert traced["variable"] == "TPUDistributedVariable"
    # A loop on the host and one over micro-batches, one program on the device, one sum for every
    # gradient and the loss.
    train, evaluate = traced["train"], traced["evaluate"]
    assert train["While"] == 2
    assert train["TPUReplicateMetadata"] == evaluate["TPUReplicateMetadata"] == 1
    assert train["CrossReplicaSum"] == traced["variables"] + 1
    assert evaluate["CrossReplicaSum"] == 1
    # Nothing calls back to Python, draws from a stateful generator or has a shape of its own.
    assert not {"PyFunc", "EagerPyFunc", "RandomUniform", "Where", "Unique"} & train.keys()


@pytest.fixture
def start(launch, train_command):
    def run(workdir, *own):
        options = ["--config.strategy=multiworker", "--config.accumulation_steps=2", STEPS]
        words = [train_command(workdir, *options, *more) for more in own or ([], [])]
        workers = zip(words, cluster(2), strict=True)
        return [launch(*each, environment=environment) for each, environment in workers]

    return run
