"""A page that runs a model in the browser: nothing to install, no server that computes.

Its TFLite file runs in LiteRT.js. The page is a folder for a server, or one file.
"""

import base64
import contextlib
import functools
import gzip
import hashlib
import html
import io
import json
import os
import pathlib
import re
import shutil
import string
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.download import cache_directory, download
from keras_vit.checkpoints.model_source import WEB_PAGE_FILE, Kind, model_source
from keras_vit.few_shot_head import BIAS, L2, STANDARD_DEVIATION_FLOOR
from keras_vit.files.hidden_folder import make_folder, writing
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.photos.prepare_photos import keeps_upright, parsed_operations, prepare_photo
from keras_vit.training.errors import first_line
from keras_vit.training.inference.interface import Interface, exported_operations, image_size
from keras_vit.training.io.atomic import atomic_directory, write_text
from keras_vit.type_hints import Tensor

from ..errors import ExportError, damage_refused
from ..supported_models import check_range, output_name, portable
from ..tflite.to_tflite import to_tflite

# LiteRT.js.
VERSION = "2.5.3"
# Package: hash of its archive, as npm's registry states it.
_PACKAGES = {
    "core": (
        "sha512-PlGmbMOq9WitX7FO0jhbdJw9GthatsyuCQXjTt/wJZo0FLaw48q4tz8IwqgqCIkviYGr9OFDL1kCnN4nzWoyJQ=="
    ),
    "wasm-utils": (
        "sha512-4fJiw6tBQnIs+0jH/OQ16nYOiSl8/+zZnn5h2ul8aTKHi05sVqZW580Tmk78pC2kT39A9OYBVdFawteZ/sI1kQ=="
    ),
}
# For processors with relaxed SIMD, for all others, and for several threads.
BUILDS = ("litert_wasm_internal", "litert_wasm_compat_internal", "litert_wasm_threaded_internal")

HERE = pathlib.Path(__file__).parent / "page"
MODEL = "model.tflite"
LICENSE = "LICENSE-LiteRT.txt"
_WORKER = "service-worker.js"
_MODEL_INSIDE = re.compile(rf'id="asset:{re.escape(MODEL)}">([^<]+)<'.encode())
_SETTINGS_INSIDE = re.compile(rb'id="settings">(.*?)</script>')
# A single file has the build that every browser runs: without a server there are no threads.
_SINGLE = BUILDS[1]
_WITHOUT_GPU = "GPUs take models whose weights are floats; this one's are integers."
_WEIGHTS = {"none": "float32", "dynamic": "int8", "int8-full": "int8"}


def to_web(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    quantization: str = "dynamic",
    calibration: Iterable[Tensor] | None = None,
    examples: Sequence[Tensor] = (),
    activation: str | None = None,
    single_file: bool = False,
    teach: bool = False,
    litert_folder: str | os.PathLike | None = None,
) -> pathlib.Path:
    """Writes a page in which a model runs, on a phone or computer, with or without a network.

    Its visitor chooses or photographs an image and sees the most probable classes, how long
    they took, and where the model looks (section 4.5); of a model of pixels their classes over the
    image, and the area of each. Images stay on the device: the page asks
    for nothing but its own files. They are prepared as `keras_vit.predict` prepares them.

    Args:
        model: a classifier of this package, one of `export.supported_models.MODELS`; with `teach`
            with or without a head.
        path: directory to write, for a server of files; with `single_file` the .html file. It is
            returned.
        labels: class names in the order of the logits; None takes `model.class_names`.
        title: plain text at the top of the page; None says what the model does.
        quantization: of the weights, as in `export.to_tflite`.
        calibration: images, as in `export.to_tflite`.
        examples: images (height, width, 3), uint8 or float in [0, 1], which the page offers to
            try. They become public with it.
        activation: "softmax" or "sigmoid", from logits to probabilities; None takes the model's.
        single_file: whether to write one file that opens without a server: larger, without
            threads.
        teach: whether the page learns classes of its visitor from a few photos, on the device, in
            place of the model's own, as `keras_vit.few_shot_head` does.
        litert_folder: where LiteRT.js lies, in archives as `npm pack` names them; None fetches it
            from npm once.

    Raises `ExportError` if the model is of another package or has no head, its images are not made
    by operations that the page has, or LiteRT.js cannot be had; `ValueError` if an argument is out
    of its range; `FileExistsError` if the directory holds something else; `OSError` if it cannot be
    written.
    """
    model = portable(model)
    classes = model.arguments["num_classes"]
    if teach and (model.classifies == "pixel" or len(model.endpoints["representation"].shape) != 2):
        raise ExportError(
            "Expected a model with one row of features for an image, with --teach. Received: "
            f"{model.name}."
        )
    if classes is None and not teach:
        raise ExportError(
            "Expected a model with a head: the page shows classes. Received: one with num_classes="
            "None. With teach=True, which is --teach, its visitor names them."
        )
    # Before the work of an export in vain.
    page_operations(exported_operations(model), image_size(model))
    litert = litert_js(litert_folder)
    with tempfile.TemporaryDirectory() as directory:
        file = to_tflite(
            model,
            pathlib.Path(directory) / MODEL,
            quantization=quantization,
            calibration=calibration,
            labels=labels,
            attention_rollout=_has_rollout(model),
            feature_vector=teach and classes is not None,
            activation=activation,
        )
        settings = {
            **page_settings(model, Interface.of_file(file, image_size(model), output_name(model))),
            "without_gpu": None if quantization in ("none", "float16") else _WITHOUT_GPU,
            "examples": [_png(example) for example in examples],
        }
        if teach:
            signature = "serving_default" if classes is None else "feature_vector"
            digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
            constants = {"l2": L2, "bias": BIAS, "floor": STANDARD_DEVIATION_FLOOR}
            settings["teach"] = {"signature": signature, "model": digest, **constants}
        height, width = image_size(model)
        megabytes = file.stat().st_size / 1e6
        counted = "Classes" if teach or model.classifies != "number" else "Numbers"
        count = "those that you teach it" if teach else f"{classes:,}"
        settings["facts"] = {
            "Model": f"{model.name}, {model.count_params() / 1e6:,.1f} million parameters",
            "Images": f"{width} × {height} pixels",
            counted: count,
            "Weights": f"{_WEIGHTS.get(quantization, quantization)}, {megabytes:.1f} MB",
            "Runtime": f"LiteRT.js {VERSION}",
        }
        tells = {"number": "numbers of an image", "pixel": "classes of pixels apart"}
        summary = f"Tells {count} {tells.get(model.classifies, 'classes apart')}, in your browser."
        if teach:
            summary = "Learns your classes from a few photos, in your browser."
        return write_page(
            file,
            path,
            litert,
            settings=settings,
            title=title
            or ("Classes of pixels" if model.classifies == "pixel" else "Image classifier"),
            summary=summary,
            single_file=single_file,
        )


def _has_rollout(model):
    """Whether the model has a map of the image: axial attention and residual networks have none."""
    return isinstance(model, VisionTransformer) and model.arguments["attention"] == "global"


def page_settings(model: keras.Model, interface: Interface) -> dict[str, Any]:
    """Returns the settings of a page that follow from its model and the interface of its file.

    `rollout`, [rows, columns] of a map of the image, and `stride`, the pixels of each, are None of
    models that have none.
    """
    has_rollout = _has_rollout(model)
    return {
        "operations": page_operations(interface.preprocessing, interface.image_size),
        "image_size": list(interface.image_size),
        "classifies": interface.classifies,
        "labels": interface.class_names,
        "thresholds": interface.thresholds,
        "activation": interface.applied,
        "rollout": list(model.grid_size) if has_rollout else None,
        "stride": model.token_stride if has_rollout else None,
    }


def page_operations(text: str, size: tuple[int, int]) -> list[dict]:
    """Returns operations as page/photo.js has them, tried here on a photo."""
    photo = np.zeros((2 * size[0], 2 * size[1], 3), "uint8")
    try:
        shape = prepare_photo(photo, text).shape
    except ValueError as error:
        raise ExportError(f"The page cannot prepare images as the model wants: {error}") from error
    if not keeps_upright(text):
        raise ExportError(
            f"Expected photos to be upright, as browsers show them. Received: {text!r}."
        )
    if shape != (*size, 3):
        raise ExportError(
            f"Expected operations that give images of shape {(*size, 3)}. Received: {text!r}, "
            f"which gives {shape}."
        )
    operations = [{"name": name, **arguments} for name, arguments, _ in parsed_operations(text)]
    if any(each.get("antialias") for each in operations):
        raise ExportError(f"Expected model.preprocessing without antialias. Received: {text!r}.")
    return json.loads(json.dumps(operations))  # tuples become lists


def _png(image: Tensor) -> str:
    """Returns a PNG as a data URL."""
    from PIL import Image

    pixels = np.asarray(image)
    if pixels.dtype != np.uint8:
        check_range(pixels)
        pixels = np.rint(pixels * 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def litert_js(folder: str | os.PathLike | None = None) -> dict[str, bytes]:
    """Returns {name: content} of the files of LiteRT.js.

    `@litertjs/core.js` and `@litertjs/wasm-utils.js` are modules, and of each of `BUILDS` there
    are NAME.js and NAME.wasm.

    Args:
        folder: with the archives as `npm pack` names them; None is the cache of downloads, which
            is filled from npm's registry where they are not there.

    Raises `ExportError` if an archive cannot be had, or is another than the one that this package
    was tested with.
    """
    files = {}
    for package, expected in _PACKAGES.items():
        archive = _archive(package, folder)
        digest = hashlib.sha512(archive.read_bytes()).digest()
        received = f"sha512-{base64.b64encode(digest).decode()}"
        if received != expected:
            raise ExportError(
                f"Expected {package} {VERSION} of @litertjs with the hash {expected}. Received: "
                f"{archive} with {received}. Delete it and try again."
            )
        with tarfile.open(archive) as members:
            wanted = {f"@litertjs/{package}.js": "package/dist/index.js"}
            if package == "core":
                names = (f"{build}.{kind}" for build in BUILDS for kind in ("js", "wasm"))
                wanted.update((name, f"package/wasm/{name}") for name in names)
            for name, member in wanted.items():
                stream = members.extractfile(member)
                assert stream is not None
                files[name] = stream.read()
    return files


def _archive(package, folder):
    name = f"litertjs-{package}-{VERSION}.tgz"
    archive = pathlib.Path(folder or cache_directory() / "litert_js") / name
    if archive.exists():
        return archive
    if folder:
        raise ExportError(
            f"Expected {name} in {folder}. Write it there with: npm pack "
            f"@litertjs/{package}@{VERSION} --pack-destination {folder}"
        )
    npm = shutil.which("npm")
    if npm is None:
        url = f"https://registry.npmjs.org/@litertjs/{package}/-/{package}-{VERSION}.tgz"
        return download(url, archive)
    # npm knows the proxy and the registry that its user set.
    make_folder(archive.parent)
    with writing(archive.parent), tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        command = [npm, "pack", f"@litertjs/{package}@{VERSION}", "--pack-destination", directory]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
            raise ExportError(
                f"LiteRT.js cannot be had from npm: {first_line(' '.join(errors))}. Without "
                f"network access, run `npm pack @litertjs/{package}@{VERSION}` elsewhere and put "
                f"{name} into {archive.parent}."
            )
        os.replace(pathlib.Path(directory) / name, archive)
    return archive


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
        tflite: the file that the page runs.
        path: the directory to write, or with `single_file` the .html file; it is returned.
        litert: the files of LiteRT.js, from `litert_js`.
        settings: what page/main.js reads of the model: `operations`, `image_size`, `labels`,
            `classifies`, `activation`, `rollout`, `teach`, `without_gpu`, `examples` and `facts`.
        title, summary: plain text.
        single_file: whether everything goes into one file.

    Raises `FileExistsError` if the directory holds something else.
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
    version = hashlib.sha256(json.dumps(settings).encode())
    for content in (style, *code.values(), *assets.values()):
        version.update(content)
    known = {
        **settings,
        "version": version.hexdigest()[:16],
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
    with atomic_directory(path, WEB_PAGE_FILE) as temporary:
        for name, content in files.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_bytes(content)
    return path


@contextlib.contextmanager
def tflite_of_page(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields the TFLite file of a page, or `path` if that is none.

    Raises `ExportError` if it is an .html file without a model.
    """
    path = pathlib.Path(path)
    if model_source(path).kind is not Kind.WEB_PAGE:
        yield path
    elif path.is_dir():
        yield path / "assets" / MODEL
    else:
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


def settings_of_page(path: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the settings of a page, a folder or a single file, as `write_page` takes them.

    None of what is no page. Raises `ExportError` if they are damaged.
    """
    found = model_source(path)
    if found.kind is not Kind.WEB_PAGE:
        return None
    file = found.path / "index.html" if found.path.is_dir() else found.path
    with damage_refused(f"The settings of {file} are damaged"):
        return json.loads(_SETTINGS_INSIDE.findall(file.read_bytes())[0])


def _modules(litert: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns {name that modules import: content}."""
    ours = {file for file in HERE.glob("*.js") if file.name != _WORKER}
    theirs = {name.removesuffix(".js"): text for name, text in litert.items() if name[0] == "@"}
    return theirs | {f"page/{file.stem}": file.read_bytes() for file in sorted(ours)}


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
