"""Processes that were started differently, or twice, stop before they train."""

import pytest

from keras_vit.training.config import default_config, schema
from keras_vit.training.errors import UsageError
from keras_vit.training.loop import agreement
from keras_vit.training.loop.run_directory import RunDirectory


class Engine:
    """Process 0 of a job whose others answer what `change` makes of its text."""

    is_chief, step = True, 4

    def __init__(self, change=str):
        self.change = change

    def gather(self, text):
        return [text, self.change(text)]


def check(tmp_path, change):
    config = schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    agreement.check_alike(Engine(change), config, tmp_path)


@pytest.mark.parametrize(
    "mine, theirs, named",
    [
        ('"config.seed": 0', '"config.seed": 1', "config.seed is 0 in worker 0 and 1 in worker 1"),
        ('"config.seed": 0, ', "", "config.seed is 0 in worker 0 and None in worker 1"),
        ('-vit": "', '-vit": "1', "the version of keras-vit is '0"),
        ("/run", "/other", "--workdir is '"),
    ],
)
def test_what_differs_is_named(tmp_path, mine, theirs, named):
    check(tmp_path / "run", str)
    with pytest.raises(UsageError, match="Start all of them again") as error:
        check(tmp_path / "run", lambda text: text.replace(mine, theirs))
    assert named in str(error.value)


def test_what_every_process_has_of_its_own():
    names = schema.shared_by_processes(default_config())
    left_out = {key.name for key in schema.KEYS} - names.keys()
    assert left_out == {"processes.index", "processes.coordinator", "data_dir"}


def check_data(change):
    train = {"examples": 10, "digest": "ab" * 16}
    data = {"class_names": ["crow", "owl"], "train": train, "eval": None}
    agreement.check_data(Engine(change), data)


@pytest.mark.parametrize(
    "mine, theirs, named",
    [
        (": 10", ": 9", "the examples of train is 10 in worker 0 and 9 in worker 1"),
        ("abab", "cdab", "the digest of train is 'abab.*' in worker 0 and 'cdab.*' in worker 1"),
        ('names": "', 'names": "0', "the digest of the class names is '.*' in worker 0 and '0"),
    ],
)
def test_other_data_is_refused(mine, theirs, named):
    check_data(str)
    expected = f"Expected all workers to read the same data: {named}.*same files"
    with pytest.raises(UsageError, match=expected):
        check_data(lambda text: text.replace(mine, theirs, 1))


def test_different_steps():
    with pytest.raises(UsageError, match="newest is 4 in worker 0 and 14 in worker 1"):
        agreement.check_step(Engine(lambda text: text.replace("4", "14")))


def test_directory_that_cannot_be_written_is_refused_by_all(tmp_path):
    folder = tmp_path / "run"
    folder.touch()
    with pytest.raises(UsageError, match=r"is a file\. Name a directory"):
        agreement.acquire(Engine(lambda text: ""), RunDirectory(folder, None))
