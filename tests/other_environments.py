"""Environments beside .venv, for lanes whose packages do not go together with those of .venv."""

import pathlib
import subprocess
import sysconfig

ROOT = pathlib.Path(__file__).parents[1]


def python_of(name: str, lock: str, python: str, over: bool = False) -> pathlib.Path:
    """Returns the Python of the environment in a folder, built of `python` if `lock` is newer.

    Its packages are those of the file `lock` alone, or lie `over` those of this environment.
    """
    folder, lock_path = ROOT / name, ROOT / lock
    installed = folder / "installed"
    if not (installed.exists() and installed.stat().st_mtime >= lock_path.stat().st_mtime):
        print(f"Installing the packages of {lock} into {name} (once, two minutes)", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        if over:
            (packages,) = folder.glob("lib/python*/site-packages")
            (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps"]
        options = ["--disable-pip-version-check", "--no-compile", "-r", lock_path]
        subprocess.run([*pip, *options], check=True)
        installed.touch()
    return folder / "bin/python"
