"""Two real worker processes of TensorFlow's `MultiWorkerMirroredStrategy`."""

import pytest

from tests.training.engine.job_tests import *  # noqa: F403
from tests.training.engine.job_tests import STEPS


@pytest.fixture
def start(launch, cluster, train_command):

    def run(workdir, *own):
        options = ["--config.strategy=multiworker", "--config.accumulation_steps=2", STEPS]
        return [
            launch(*train_command(workdir, *options, *more), environment=environment)
            for environment, more in zip(cluster(2), own or ([], []), strict=True)
        ]

    return run
