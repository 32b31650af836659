"""LiteRT.js, which runs TFLite files in browsers: one version, by its hashes."""

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile

from keras_vit.checkpoints.download import cache_directory, download
from keras_vit.export.errors import ExportError
from keras_vit.training.errors import first_line

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


def litert_js(folder: str | os.PathLike | None = None) -> dict[str, bytes]:
    """Returns {name: content} of the files of LiteRT.js.

    `@litertjs/core.js` and `@litertjs/wasm-utils.js` are modules, and of each of `BUILDS` there
    are NAME.js and NAME.wasm.

    Args:
        folder: with the archives as `npm pack` names them; None is the cache of downloads, which
            is filled from npm's registry where they are not there.

    Raises:
        ExportError: if an archive cannot be had, or is another than the one that this package
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
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
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
