"""Processes that were started differently, or twice, stop before they train."""

import pytest

from keras_vit.training.config import default_config, schema
from keras_vit.training.errors import UsageError
from keras_vit.training.loop import agreement
from keras_vit.training.loop.run_directory import RunDirectory

CONFIG = schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
TRAIN = {"examples": 10, "digest": "ab" * 16}
DATA = {"class_names": ["crow", "owl"], "train": TRAIN, "eval": None}


class Engine:
    """Process 0 of a job whose others answer what `change` makes of its text."""

    is_chief, step, parts = True, 4, 2

    def __init__(self, change=str):
        self.change = change

    def gather(self, text):
        return [text, self.change(text)]


@pytest.mark.parametrize(
    "check, mine, theirs, named",
    [
        (
            "alike",
            '"config.seed": 0',
            '"config.seed": 1',
            "seed is 0 in worker 0 and 1 in worker 1",
        ),
        ("alike", '"config.seed": 0, ', "", "seed is 0 in worker 0 and None in worker 1"),
        ("alike", '-vit": "', '-vit": "1', "the version of keras-vit is '0"),
        ("alike", "/run", "/other", "--workdir is '/run'.* and '/other'"),
        ("data", ": 10", ": 9", "the examples of train is 10 in worker 0 and 9 in worker 1"),
        ("data", "abab", "cdab", "the digest of train is 'abab.* in worker 0 and 'cdab"),
        ("data", 'names": "', 'names": "0', "the digest of the class names is '.* and '0"),
        ("step", "4", "14", "newest is 4 in worker 0 and 14 in worker 1"),
    ],
)
def test_what_differs_is_named(check, mine, theirs, named):
    require = getattr(agreement, f"check_{check}")
    own = {"alike": (CONFIG, "/run"), "data": (DATA,), "step": ()}[check]
    require(Engine(), *own)
    with pytest.raises(UsageError, match=f"^Expected all workers .*{named}"):
        require(Engine(lambda text: text.replace(mine, theirs, 1)), *own)


def test_what_every_process_has_of_its_own():
    names = schema.shared_by_processes(default_config())
    left_out = {key.name for key in schema.KEYS} - names.keys()
    assert left_out == {"processes.index", "processes.coordinator", "data_dir"}


def test_directory_that_cannot_be_written_is_refused_by_all(tmp_path):
    folder = tmp_path / "run"
    folder.touch()
    with pytest.raises(UsageError, match=r"is a file\. Name a directory"):
        agreement.acquire(Engine(lambda text: ""), RunDirectory(folder, None))


def test_parts_of_several_processes_need_a_folder():
    with pytest.raises(UsageError, match="Mount it, as with gcsfuse"):
        agreement.check_shared(Engine(), "gs://bucket/run")
    agreement.check_shared(Engine(), "/shared/run")
