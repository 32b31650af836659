"""A run with dropout or masks that goes on elsewhere ends where one that stayed does."""

import pytest


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("task", ["classifier", "masked"])
def test_devices_and_workers(task, take_the_tour, cluster):
    workers = [({"strategy": "multiworker"}, environment) for environment in cluster(2)]
    take_the_tour(task, {"strategy": "mirrored"}, workers, {})
