import pathlib
import zipfile

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from keras_vit import export
from keras_vit.export.errors import ExportError, RuntimeMissing
from keras_vit.export.tflite.flatbuffer import pack, unpack
from keras_vit.export.verification import litert_compiled_model
from keras_vit.export.verification.litert_compiled_model import CompiledOnCPU, CompiledOnGPU
from keras_vit.export.verification.litert_interpreter import TFLiteInterpreter


@pytest.fixture(scope="module")
def model(make_vit):
    return make_vit(num_layers=1)


@pytest.fixture(scope="module")
def tflite(model, tmp_path_factory):
    return export.to_tflite(
        model, tmp_path_factory.mktemp("tflite") / "m.tflite", labels=[*"abcde"]
    )


def test_on_the_processor_it_computes_the_interpreters_bits(model, tflite, images):
    np.testing.assert_array_equal(
        CompiledOnCPU(tflite).run(images), TFLiteInterpreter(tflite).run(images)
    )
    report = export.verify(model, tflite, images, runtime="compiled", costs=False)
    assert report.ok and (report.runtime, report.device) == ("compiled", "XNNPACK")
    assert report.fully_delegated and report.fallbacks == () and report.float16_error is None
    assert "delegated" in str(report)


def test_on_the_gpu_it_computes_what_the_model_does(gpu, model, tflite, images):
    report = export.verify(model, tflite, images, runtime="gpu")
    assert report.ok and report.max_error < 1e-5
    assert report.fully_delegated and report.fallbacks == ()
    assert report.device


def test_what_an_accelerator_refuses_is_named_with_its_reason(gpu, model, tflite, images, tmp_path):
    tree = unpack(tflite.read_bytes())
    shrink = next(
        operation.builtinOptions
        for operation in tree.subgraphs[0].operators
        if isinstance(operation.builtinOptions, schema.StridedSliceOptionsT)
    )
    shrink.shrinkAxisMask = 2
    (tmp_path / "m.tflite").write_bytes(pack(tree))
    with zipfile.ZipFile(tflite) as texts, zipfile.ZipFile(tmp_path / "m.tflite", "a") as copy:
        for name in texts.namelist():
            copy.writestr(name, texts.read(name))
    report = export.verify(model, tmp_path / "m.tflite", images, runtime="gpu", costs=False)
    assert not report.fully_delegated
    assert any("STRIDED_SLICE" in each and "shrink" in each for each in report.fallbacks)
    assert "not fully: STRIDED_SLICE" in str(report)


def test_a_runtime_that_is_not_there_says_what_to_install(model, tflite, images, monkeypatch):
    monkeypatch.setattr(litert_compiled_model, "BROWSERS", ())
    monkeypatch.setattr(litert_compiled_model, "DRIVERS", ())
    for name in litert_compiled_model.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeMissing, match="apt-get install chromium") as error:
        export.verify(model, tflite, images, runtime="gpu")
    assert len(str(error.value).splitlines()) == 1


def test_a_driver_without_a_gpu_says_so(tflite, images, monkeypatch, tmp_path):
    (tmp_path / "none.json").write_text("{}")
    monkeypatch.setenv("VK_ICD_FILENAMES", str(tmp_path / "none.json"))
    with pytest.raises(RuntimeMissing, match="Expected a GPU"):
        CompiledOnGPU(tflite).run(images)


def test_a_runtime_opens_its_own_format(model, tflite, images):
    with pytest.raises(ExportError, match=r"a \.tflite file: interpreter, compiled, gpu"):
        export.verify(model, tflite, images, runtime="hub")
    with pytest.raises(ExportError, match="CompiledModel"):
        broken = CompiledOnCPU(tflite)
        broken._path = pathlib.Path("nothing.tflite")
        broken.run(images)
