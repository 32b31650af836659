import json

import pytest

from training.engines.tensorflow.tf_config import read_cluster
from training.errors import UsageError

WORKERS = {"worker": ["host1:2222", "host2:2222"]}


def environment(content):
    return {"TF_CONFIG": content if isinstance(content, str) else json.dumps(content)}


def test_cluster():
    cluster = read_cluster(
        environment({"cluster": WORKERS, "task": {"type": "worker", "index": "1"}})
    )
    assert cluster.task == ("worker", 1)
    assert cluster.others == {"worker 0 (host1:2222)": ("host1", 2222)}


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "it is not set"),
        ("{cluster", "it is not JSON"),
        ({"task": {"type": "worker", "index": 0}}, 'it has no "cluster"'),
        ({"cluster": WORKERS}, 'it has no "task"'),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": 2}}, "has no worker 2"),
        ({"cluster": WORKERS, "task": {"type": "worker", "index": "x"}}, "'x' is not a number"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}, "a job 'ps'"),
        ({"cluster": {"worker": ["host1"]}, "task": {}}, "'host1' is not host:port"),
        ({"cluster": {"worker": ["a:1", "a:1"]}, "task": {}}, "the same address"),
    ],
)
def test_wrong_cluster(content, message):
    with pytest.raises(UsageError, match=message):
        read_cluster(environment(content))
