"""Checkpoints by name or path."""

import os
from pathlib import Path

from keras_vit.checkpoints.download import cache_directory, download
from keras_vit.checkpoints.published import url_of


def find_checkpoint(name_or_path: str | os.PathLike) -> Path:
    """Returns the path of a checkpoint, which is downloaded first if it is a published name.

    Args:
        name_or_path: the path of an existing file or directory, or a name that
            `keras_vit.checkpoints.published.url_of` knows.

    Raises:
        FileNotFoundError: if it is neither.
        DownloadError: if the download fails; the message names the address and
            where to put a copy.
    """
    if Path(name_or_path).exists():
        return Path(name_or_path)
    try:
        url = url_of(str(name_or_path))
    except ValueError as error:
        raise FileNotFoundError(f"There is no file {str(name_or_path)!r}. {error}") from None
    folder = str(name_or_path).rpartition("/")[0]
    return download(url, cache_directory() / folder / url.rpartition("/")[2])
