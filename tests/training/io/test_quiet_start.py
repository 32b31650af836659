import gc
import sys
import types

import pytest

from keras_vit.training.io.quiet_start import quick_imports
from tests.training.data.helpers import write_photos

# Commands alone import without Keras: see `runs_command`.
START = """
import gc, sys
from keras_vit.__main__ import main
from keras_vit.training import data

photos, digits, nowhere = sys.argv[1:]
data.open(photos, "train[:1]")
data.open("digits", "train", digits)
main(["data", "list"])
assert main(["data", "check", "vtab/dtd", f"--data_dir={nowhere}"]) == 2
assert "tensorflow" not in sys.modules
for name in (photos, "digits"):
    assert main(["data", "check", name, f"--data_dir={digits}"]) == 0
from keras_vit.training.loop import trainer
assert not {"jax", "matplotlib", "sklearn"} & set(sys.modules)
import keras, matplotlib.pyplot, sklearn.metrics
assert gc.isenabled() and gc.get_freeze_count() > 100_000
"""
CHATTER = """
from keras_vit.training.io.quiet_start import quiet_start
import os, sys
with quiet_start():
    os.write(2, b"I0000 00:00:1 port.cc:153] oneDNN custom operations are on.\\na real problem\\n")
    exec(sys.argv[1])
os.write(2, b"afterwards\\n")
"""


def test_drops_chatter_and_keeps_the_rest(run_command):
    assert run_command(CHATTER, "pass").stderr == "a real problem\nafterwards\n"
    failed = run_command(CHATTER, "raise ImportError('missing library')").stderr
    assert failed.startswith("a real problem\nTraceback") and "missing library" in failed


LIBJPEG = """
import os, sys
from keras_vit.training.io.quiet_start import without_libjpeg
with without_libjpeg():
    os.write(2, b"Corrupt JPEG data: premature end of data segment\\n")
    os.write(2, b"another line\\n")
    print(sys.stderr.isatty(), sys.stderr.fileno() != 2, file=sys.stderr)
    exec(sys.argv[1])
os.write(2, b"afterwards\\n")
"""


def test_lines_of_libjpeg_are_left_out_and_the_last_words_of_an_abort_are_not(run_command):
    said = "Some photos hold damaged JPEG data, and were read as far as they are whole: keras-vit"
    lines = run_command(LIBJPEG, "pass").stderr.splitlines()
    assert sorted(lines[:2]) == ["False True", "another line"] and lines[3] == "afterwards"
    assert lines[2].startswith(said)
    aborted = run_command(LIBJPEG, "os.write(2, b'a fatal error\\n'); os.abort()")
    assert "a fatal error\n" in aborted.stderr and aborted.returncode != 0


def test_a_command_starts_without_what_it_may_need_later(run_command, data_dir, tmp_path):
    write_photos(tmp_path, ["photos/crow/1.png", "photos/owl/1.png"])
    result = run_command(START, f"folder:{tmp_path}/photos", data_dir, tmp_path)
    assert result.returncode == 0, result.stderr
    # All that is said is the error of what is missing, and nothing of TensorFlow.
    assert result.stderr.strip().endswith(f"prepare vtab/dtd --data_dir={tmp_path}")
    assert result.stdout.count("all well") == 2


def test_packages_are_found_again_also_after_an_error(monkeypatch, request):
    request.addfinalizer(gc.unfreeze)
    for name in ("keras", "sklearn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    finders = list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError, match="sklearn"), quick_imports():
        assert not gc.isenabled()
        import sklearn
    import sklearn

    assert sklearn.__file__ and gc.isenabled() and sys.meta_path == finders
    # Keras that is there already stays whole.
    monkeypatch.setitem(sys.modules, "keras", types.ModuleType("keras"))
    with quick_imports():
        assert sys.meta_path == finders and gc.isenabled()
