"""Commands on `ram://bucket`, which a folder keeps from one process to the next.

    in_bucket.py FOLDER DEATH MODULE ARGUMENT… [+ MODULE ARGUMENT…]

The process is killed at the upload of a run of that number; 0 lets it live.
"""

import importlib
import itertools
import os
import pathlib
import shutil
import signal
import sys

import pytest

from keras_vit.training.io import stores
from keras_vit.training.io.paths import any_path
from keras_vit.training.loop.run_directory import RunDirectory
from tests.ram_store import register


def keep(folder):
    """Writes what is in the bucket to a new folder in place of `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    bucket = any_path("ram://bucket")
    for name in stores.files_below(bucket):
        stores.fetch(bucket / name, folder / name)


def die_at(number, folder):
    upload, calls = RunDirectory.upload, []

    def counted(self, wait=True):
        calls.append(wait)
        if len(calls) == number:
            self.wait()
            keep(folder)
            os.kill(os.getpid(), signal.SIGKILL)
        upload(self, wait)

    RunDirectory.upload = counted


def main(folder, death, *words):
    folder = pathlib.Path(folder)
    register(pytest.MonkeyPatch())
    for file in folder.rglob("*"):
        if file.is_file():
            stores.send(file, any_path("ram://bucket") / file.relative_to(folder).as_posix())
    if int(death):
        die_at(int(death), folder)
    for is_end, command in itertools.groupby(words, "+".__eq__):
        if is_end:
            continue
        module, *arguments = command
        status = importlib.import_module(module).main(arguments)
        if status:
            sys.exit(status)
    keep(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
