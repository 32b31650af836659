"""Commands on `ram://bucket`, which a folder keeps from one process to the next.

    in_bucket.py FOLDER DEATH MODULE ARGUMENT… [+ MODULE ARGUMENT…]

The process is killed at the upload of a run of that number; 0 lets it live.
"""

import importlib
import os
import pathlib
import shutil
import signal
import sys

import pytest

from tests.ram_store import register
from training.io import stores
from training.io.paths import any_path
from training.loop.run_directory import RunDirectory


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
    commands = [[]]
    for word in words:
        if word == "+":
            commands.append([])
        else:
            commands[-1].append(word)
    for module, *arguments in commands:
        status = importlib.import_module(module).main(arguments)
        if status:
            sys.exit(status)
    keep(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
