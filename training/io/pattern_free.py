"""Names of folders that TensorFlow does not mistake for patterns."""

import atexit
import functools
import os
import re
import shutil
import tempfile

_PATTERN = re.compile(r"[*?\[\]\\]")


@functools.cache
def pattern_free(directory: str) -> str:
    """Returns a name of a folder in which no character stands for others.

    TensorFlow looks its checkpoints up as patterns, in which `[` begins a set of characters, and
    then opens them by the same text as names, so that nothing can be escaped. A folder with
    such a character is reached by a link, which is removed when the process ends.

    Args:
        directory: the folder's absolute path; it need not exist yet.
    """
    if not _PATTERN.search(directory):
        return directory
    links = tempfile.mkdtemp(prefix="keras_vit.")
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    link = os.path.join(links, "folder")
    os.symlink(directory, link)
    return link
