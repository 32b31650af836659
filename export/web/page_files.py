"""The page of a TFLite file, a folder for a server or one file; and the file inside of a page."""

import base64
import contextlib
import functools
import gzip
import hashlib
import html
import json
import os
import pathlib
import re
import string
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from keras_vit.export.errors import ExportError
from keras_vit.export.web.litert_js import BUILDS
from keras_vit.training.io.atomic import atomic_directory, write_text

HERE = pathlib.Path(__file__).parent / "page"
MODEL = "model.tflite"
LICENSE = "LICENSE-LiteRT.txt"
# Shows that a folder is a page of this package, which may be replaced.
MARKER = "code/runtime.js"
_WORKER = "service-worker.js"
_MODEL_INSIDE = re.compile(rf'id="asset:{re.escape(MODEL)}">([^<]+)<'.encode())
# A single file has the build that every browser runs: without a server there are no threads.
_SINGLE = BUILDS[1]


def write_page(
    tflite: str | os.PathLike,
    path: str | os.PathLike,
    litert: Mapping[str, bytes],
    *,
    settings: Mapping[str, Any],
    title: str,
    summary: str,
    single_file: bool = False,
) -> pathlib.Path:
    """Writes the page of a TFLite file.

    Args:
        tflite: the file.
        path: the directory to write, or with `single_file` the .html file.
        litert: the files of LiteRT.js, from `litert_js`.
        settings: what page/main.js reads of the model: `operations`, `image_size`, `labels`,
            `activation`, `rollout`, `without_gpu`, `examples` and `facts`.
        title, summary: plain text.
        single_file: whether everything goes into one file.

    Returns:
        The path.

    Raises:
        FileExistsError: if the directory holds something else.
    """
    path = pathlib.Path(path)
    modules = _modules(litert)
    builds = (_SINGLE,) if single_file else BUILDS
    assets = {
        MODEL: pathlib.Path(tflite).read_bytes(),
        LICENSE: (HERE / LICENSE).read_bytes(),
        **{name: litert[name] for build in builds for name in (f"{build}.js", f"{build}.wasm")},
    }
    packed = {name: _packed(name, content, single_file) for name, content in assets.items()}
    suffixes = {name: ".gz" if packed[name] is not assets[name] else "" for name in assets}
    style = (HERE / "page.css").read_bytes()
    code = {f"code/{name.split('/')[1]}.js": content for name, content in modules.items()}
    known = {
        **settings,
        "version": _digest(json.dumps(settings).encode(), style, *code.values(), *assets.values()),
        "files": ["./", "code/page.css", *code],
        "assets": {
            name: {"bytes": len(content), "suffix": suffixes[name]}
            for name, content in packed.items()
        },
    }
    if single_file:
        urls = {name: f"data:text/javascript;base64,{_base64(c)}" for name, c in modules.items()}
        style_element = f"<style>\n{style.decode()}</style>"
    else:
        urls = {name: f"./{file}" for name, file in zip(modules, code, strict=True)}
        style_element = '<link rel="stylesheet" href="code/page.css">'
    scripts = (
        f'<script type="text/plain" id="asset:{name}">{_base64(content)}</script>'
        for name, content in packed.items()
    )
    page = string.Template((HERE / "index.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        summary=html.escape(summary),
        settings=_json(known),
        style=style_element,
        import_map=f'<script type="importmap">{_json({"imports": urls})}</script>',
        assets="\n".join(scripts) if single_file else "",
    )
    if single_file:
        write_text(path, page)
        return path
    files = {
        "index.html": page.encode(),
        _WORKER: (HERE / _WORKER).read_bytes(),
        "code/page.css": style,
        **code,
        **{f"assets/{name}{suffixes[name]}": content for name, content in packed.items()},
    }
    with atomic_directory(path, MARKER) as temporary:
        for name, content in files.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_bytes(content)
    return path


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
        inside = _MODEL_INSIDE.search(path.read_bytes())
        if inside is None:
            raise ExportError(
                f"Expected a page of `keras-vit export web --single-file`. Received: {path}, "
                "without a model inside."
            )
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / MODEL
            file.write_bytes(gzip.decompress(base64.b64decode(inside[1])))
            yield file
    else:
        yield path


def _modules(litert: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns {name that modules import: content}."""
    ours = {file for file in HERE.glob("*.js") if file.name != _WORKER}
    theirs = {name.removesuffix(".js"): text for name, text in litert.items() if name[0] == "@"}
    return theirs | {f"page/{file.stem}": file.read_bytes() for file in sorted(ours)}


def _digest(*contents: bytes) -> str:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def _packed(name: str, content: bytes, single_file: bool) -> bytes:
    """Returns an asset as it is stored: most servers of such folders compress nothing."""
    if name == LICENSE or (name == MODEL and not single_file):
        return content
    return gzip.compress(content, mtime=0) if name == MODEL else _packed_litert(content)


# Many pages have the same files of LiteRT.js.
@functools.lru_cache(maxsize=2 * len(BUILDS))
def _packed_litert(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _json(value: Mapping[str, Any]) -> str:
    """Returns JSON that ends no element of HTML."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
