"""What export uses of other packages that they do not document, each in one file of its own."""

import pathlib
import re
from importlib import metadata

import pytest

EXPORT = pathlib.Path(__file__).parents[2] / "export"
# (package, version that it was last tested with, code that needs it, the one file that has it)
LITE, QUANTIZER = ("ai-edge-litert", "2.3"), ("litert-quantizer", "0.11")
CONVERTER = "tensorflow.lite.python.convert"
RANGES = "from litert_quantizer.utils.qsv_utils import min_max_update"
PRIVATE = [
    ("tensorflow", "2.21", f"from {CONVERTER} import convert_saved_model", "to_tflite"),
    (*LITE, "from ai_edge_litert import schema_py_generated", "flatbuffer_and_metadata"),
    (*LITE, "interpreter._get_ops_details", "subprocesses"),
    (*QUANTIZER, "from litert_quantizer import calibrator", "quantization"),
    (*QUANTIZER, RANGES, "quantization"),
]


@pytest.mark.parametrize(("package", "version", "code", "file"), PRIVATE)
def test_it_is_there_and_one_file_uses_it(package, version, code, file):
    from ai_edge_litert.interpreter import Interpreter

    try:
        exec(code, {"interpreter": Interpreter})
    except (ImportError, AttributeError) as error:
        installed = metadata.version(package)
        pytest.fail(f"{package} {installed}, last tested with {version}: {error}")
    assert {path.stem for path in EXPORT.rglob("*.py") if code in path.read_text()} == {file}


def test_no_other_part_of_tensorflow_is_private():
    found = {
        (path.stem, line)
        for path in EXPORT.rglob("*.py")
        for line in re.findall(r"tensorflow\.(?:lite\.)?python[\w.]*", path.read_text())
    }
    assert found == {("to_tflite", CONVERTER)}
