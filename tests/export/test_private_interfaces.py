"""What export uses of other packages that they do not document, each in one file of its own."""

import pathlib
import re

EXPORT = pathlib.Path(__file__).parents[2] / "export"
# Last tested with tensorflow 2.21, ai-edge-litert 2.3 and litert-quantizer 0.11.
CONVERTER = "tensorflow.lite.python.convert"
PRIVATE = {
    f"from {CONVERTER} import convert_saved_model": "to_tflite",
    "from ai_edge_litert import schema_py_generated": "flatbuffer",
    "interpreter._get_ops_details": "subprocesses",
    "from litert_quantizer import calibrator": "quantization",
    "from litert_quantizer.utils.qsv_utils import min_max_update": "quantization",
}


def test_one_file_uses_it():
    texts = {path.stem: path.read_text() for path in EXPORT.rglob("*.py")}
    users = {code: [stem for stem, text in texts.items() if code in text] for code in PRIVATE}
    assert users == {code: [stem] for code, stem in PRIVATE.items()}
    private = r"tensorflow\.(?:lite\.)?python[\w.]*"
    found = {(stem, line) for stem, text in texts.items() for line in re.findall(private, text)}
    assert found == {("to_tflite", CONVERTER)}
