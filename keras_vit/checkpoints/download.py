"""Downloads of checkpoints into a cache, which holds complete files only."""

import base64
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from pathlib import Path

import keras

from keras_vit.checkpoints.errors import DownloadError
from keras_vit.checkpoints.model_source import HUGGING_FACE
from keras_vit.checkpoints.published_weights import TABLE, canonical_name, list_weights, url_of
from keras_vit.errors import imported
from keras_vit.files.hidden_folder import fcntl, make_folder, writing
from keras_vit.name_suggestions import did_you_mean

CHUNK = 1 << 20
# Files of a repository that are fetched; it may have the same weights in other formats.
_OF_MODEL = ("*.json", "model*.safetensors", "README.md")


def cache_directory() -> Path:
    """Returns the folder of downloads: keras_vit in Keras's own, `$KERAS_HOME` or ~/.keras."""
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    return Path(home) / "keras_vit"


def download(
    url: str,
    path: str | os.PathLike,
    timeout: float = 30,
    size_range: tuple[int, int | None] | None = None,
) -> Path:
    """Downloads a file unless it is there, and shows how far it is.

    The data goes to a file beside `path`, which is renamed when it is complete
    and, where the server states a checksum, correct. An interrupted download is
    resumed if the server still has the same file. The server may be silent for `timeout` seconds;
    the file can have `size_range`, the (least, most) bytes, where that is known. Returns `path`.

    Raises:
        DownloadError: if the server cannot be reached, has no such file, or sends
            something else than it announced.
        OSError: if the file cannot be written, as `hidden_folder.writing`.
    """
    path = Path(path)
    if path.exists():
        return path
    make_folder(path.parent)
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            # Before the download, if the server tells, and again after it.
            stated_size = response.headers.get("Content-Length")
            size = int(stated_size) if stated_size else None
            _check_size(size, size_range)
            names = ("ETag", "Last-Modified", "Content-Length")
            stated = "|".join(response.headers.get(name, "") for name in names)
            version = hashlib.sha256(stated.encode()).hexdigest()[:16]
            partial = path.with_name(f".{path.name}.{version}.part")
            with writing(path.parent), open(partial, "ab") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                if path.exists():  # another process was faster
                    partial.unlink(missing_ok=True)
                    return path
                _receive(url, response, file, timeout, size or 0)
                _check(partial, response.headers, size_range)
                if fcntl is None:
                    file.close()  # Windows renames no open file.
                os.replace(partial, path)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as e:
        reason = getattr(e, "reason", e) or type(e).__name__
        if isinstance(e, urllib.error.HTTPError):
            reason = f"the server answers {e.code}"
        raise DownloadError(
            f"{url} cannot be downloaded: {reason}. Without network access, download it elsewhere "
            f"and put it at {path}, or pass the path of your copy instead of the name."
        ) from e
    return path


def _receive(url, response, file, timeout, size):
    done = file.seek(0, os.SEEK_END)
    if done and done == size:
        return
    if done:
        request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"})
        with urllib.request.urlopen(request, timeout=timeout) as rest:
            if rest.status == 206:
                return _copy(rest, file, done, size)
        file.truncate(0)
    return _copy(response, file, 0, size)


def _copy(response, file, done, size):
    progress = keras.utils.Progbar(size or None, unit_name="byte")
    while chunk := response.read(CHUNK):
        file.write(chunk)
        done += len(chunk)
        progress.update(done)
    file.flush()
    if not done:
        raise ConnectionError("the server sends an empty file")
    if size and done != size:
        raise ConnectionError(f"the connection ended after {done} of {size} bytes")


def _check_size(size, size_range):
    least, most = size_range or (0, None)
    if size is not None and not least <= size <= (size if most is None else most):
        raise ConnectionError(
            f"the server has {size} bytes, and the published file has {least} to "
            f"{'more' if most is None else most}"
        )


def _check(partial, headers, size_range):
    """Removes a file of another size or checksum than the published one, and raises."""
    try:
        _check_size(partial.stat().st_size, size_range)
        stated = re.search(r"md5=([\w+/=]+)", ",".join(headers.get_all("x-goog-hash") or ()))
        digest = hashlib.md5(usedforsecurity=False)
        with open(partial, "rb") as file:
            while stated and (chunk := file.read(CHUNK)):
                digest.update(chunk)
        if stated and base64.b64encode(digest.digest()).decode() != stated[1]:
            raise ConnectionError("the data differs from the server's checksum; try again")
    except ConnectionError:
        partial.unlink()
        raise


def find_checkpoint(name_or_path: str | os.PathLike) -> Path:
    """Returns the path of a checkpoint, which is downloaded first if it is a published name.

    Args:
        name_or_path: the path of an existing file or directory, a name that `url_of` knows, or
            hf://USER/NAME, which may end with @REVISION.

    Raises:
        FileNotFoundError: if it is neither.
        DownloadError: if the download fails, or the file has not the size that it is published
            with; the message names the address and where to put a copy.
    """
    if Path(name_or_path).exists():
        return Path(name_or_path)
    name = str(name_or_path)
    if name.startswith(HUGGING_FACE):
        return _snapshot(name)
    url = url_of(name)
    if url is None:
        raise FileNotFoundError(
            f"There is no file {name!r}. {did_you_mean(name, list_weights())}Expected the name of "
            f"a published checkpoint, such as augreg/B_16. Received: {name!r}. "
            "keras_vit.list_weights() lists them."
        )
    name = canonical_name(name)
    folder, _, last = name.rpartition("/")
    # Every file of the Hub has the same name.
    file = f"{last}.safetensors" if url.endswith(".safetensors") else url.rpartition("/")[2]
    row = TABLE.get(name)
    path = cache_directory() / folder / file
    return download(url, path, size_range=row.size_range if row else None)


def _snapshot(address):
    """Returns the folder of a repository of Hugging Face, in the cache of huggingface_hub."""
    found = re.fullmatch(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", address)
    if not found:
        expected = "Expected hf://USER/NAME or hf://USER/NAME@REVISION"
        raise DownloadError(f"{expected}. Received: {address}")
    hub = imported("huggingface_hub", "huggingface", DownloadError)
    try:
        return Path(hub.snapshot_download(found[1], revision=found[2], allow_patterns=_OF_MODEL))
    except Exception as error:  # of its own HTTP library too
        reason = " ".join(str(error).split())[:300]
        raise DownloadError(
            f"{address} cannot be downloaded: {type(error).__name__}, {reason} Check the name and "
            "the network, or pass the folder of your copy instead."
        ) from error
