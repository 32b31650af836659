import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit import export
from keras_vit.export.tflite.flatbuffer import schema
from keras_vit.export.tflite.quantization import quantize


@pytest.fixture(scope="module")
def extremes(make_vit, images, tmp_path_factory):
    """The float file's bytes, and (least, greatest) of every tensor over all images, by name."""
    file = export.to_tflite(make_vit(), tmp_path_factory.mktemp("float") / "model.tflite")
    interpreter = Interpreter(str(file), experimental_preserve_all_tensors=True)
    run = interpreter.get_signature_runner("serving_default")
    found = {}
    for image in images:
        run(image=image[None])
        for each in interpreter.get_tensor_details():
            values = interpreter.get_tensor(each["index"])
            least, greatest = found.get(each["name"], (np.inf, -np.inf))
            found[each["name"]] = min(least, values.min()), max(greatest, values.max())
    return file.read_bytes(), found


def test_activations_range_over_their_extremes(extremes, images):
    content, found = extremes
    samples = {"serving_default": [{"image": image[None]} for image in images]}
    result = Interpreter(model_content=bytes(quantize(content, "int8", samples)))
    compared = 0
    for each in result.get_tensor_details():
        scales = each["quantization_parameters"]["scales"]
        if each["dtype"] == np.int8 and each["name"] in found and len(scales) == 1:
            least, greatest = found[each["name"]]
            width = max(greatest, 0) - min(least, 0)
            np.testing.assert_allclose(255 * scales[0], width, rtol=1e-4, err_msg=each["name"])
            compared += 1
    assert compared > 10


def test_weights_lie_in_the_flatbuffer_and_old_readers_know_the_operations(make_vit, tmp_path):
    wide = make_vit(hidden_size=128, mlp_dim=512)  # LiteRT's quantizer inlines 256 KiB at most
    file = export.to_tflite(wide, tmp_path / "m.tflite", quantization="float16")
    tree = schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0)
    assert not any(buffer.offset for buffer in tree.buffers)
    codes = [(code.deprecatedBuiltinCode, code.builtinCode) for code in tree.operatorCodes]
    assert codes == [(min(code, 127), code) for _, code in codes]
