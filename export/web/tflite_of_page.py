"""The TFLite file inside of a page."""

import base64
import contextlib
import gzip
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator

from export.errors import ExportError
from export.web.page_files import MARKER, MODEL

_INSIDE = re.compile(rf'id="asset:{re.escape(MODEL)}">([^<]+)<'.encode())


@contextlib.contextmanager
def tflite_of_page(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields the TFLite file of a page, or `path` if that is none.

    Raises:
        ExportError: if it is an .html file without a model.
    """
    path = pathlib.Path(path)
    if (path / MARKER).is_file():
        yield path / "assets" / MODEL
    elif path.is_file() and path.suffix == ".html":
        inside = _INSIDE.search(path.read_bytes())
        if inside is None:
            raise ExportError(
                f"Expected a page of `python -m export web --single-file`. Received: {path}, "
                "without a model inside."
            )
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / MODEL
            file.write_bytes(gzip.decompress(base64.b64decode(inside[1])))
            yield file
    else:
        yield path
