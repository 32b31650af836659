"""TensorFlow's file system in memory, `ram://`, as a store that commands write to."""

import contextlib
import errno
import os
import types

import pytest


class Store:
    """That file system, in which files are replaced, and writing fails at chosen calls, half done.

    Attributes:
        fails: whether the call of that number, counted from 1, fails.
        silent: whether it keeps half without an error.
        names: of the files that were written, in order.
    """

    def __init__(self, file_system):
        self._file_system = file_system
        self.reset()

    def reset(self):
        self.fails = lambda number: False
        self.silent = False
        self.names = []

    def __getattr__(self, name):
        return getattr(self._file_system, name)

    @contextlib.contextmanager
    def open(self, path, mode):
        fails = False
        if "w" in mode:
            # It would append otherwise, and takes the beginning of a name for a name.
            with contextlib.suppress(FileNotFoundError):
                self.remove(path)
            self.names.append(str(path).rpartition("/")[2])
            fails = self.fails(len(self.names))
        with self._file_system.open(path, mode) as file:

            def write_half(content):
                file.write(content[: len(content) // 2])

            yield types.SimpleNamespace(write=write_half) if fails else file
            if fails and not self.silent:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def register(patch: pytest.MonkeyPatch) -> Store:
    """Makes `ram://` a store that `etils.epath` knows, until the patch is undone."""
    from etils.epath import gpath
    from etils.epath import register as classes

    store = Store(gpath.backend_lib.tf_backend)
    patch.setattr(gpath.backend_lib, "tf_backend", store)
    patch.setattr(gpath, "_URI_PREFIXES", (*gpath._URI_PREFIXES, "ram://"))
    patch.setattr(gpath, "_URI_SCHEMES", gpath._URI_SCHEMES | {"ram"})
    patch.setitem(gpath._URI_MAP_ROOT, "ram://", "/ram/")
    patch.setitem(gpath._PREFIX_TO_BACKEND, "ram", store)
    patch.setitem(classes._URI_PREFIXES_TO_CLS, "ram://", gpath.PosixGPath)
    return store
