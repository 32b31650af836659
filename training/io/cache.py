"""Where things are kept that cost time to compute again."""

import os
import pathlib


def cache_folder(name: str) -> pathlib.Path:
    """Returns the folder `name` of this package's cache, `$XDG_CACHE_HOME/keras-vit`."""
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root, "keras-vit", name)
