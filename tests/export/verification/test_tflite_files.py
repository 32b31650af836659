"""TFLite files in LiteRT's `CompiledModel`, in OpenVINO and in MediaPipe."""

import dataclasses
import pathlib

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.errors import ExportError, RuntimeMissing
from keras_vit.export.tflite.flatbuffer import pack, unpack
from keras_vit.export.tflite.quantization import QUANTIZATIONS
from keras_vit.export.tflite.to_tflite import to_tflite_files
from keras_vit.export.verification import tflite_files
from keras_vit.export.verification.report_and_thresholds import THRESHOLDS
from keras_vit.export.verification.subprocesses import run_compiled
from tests.export.conftest import run, verify

FAMILIES = {
    "token": {},
    "map": {"classifier": "map"},
    "hybrid": {"resnet": {"num_layers": (1,)}, "patch_size": 2},
}


def test_on_the_processor_it_computes_the_interpreters_bits(tiny, tiny_tflite, images):
    outputs, delegation = tflite_files.open_compiled(tiny_tflite).run(images)
    np.testing.assert_array_equal(outputs, run(tiny_tflite, images))
    assert delegation.complete and delegation.device == "XNNPACK" and delegation.float16 is None


def test_on_the_gpu_it_computes_what_the_model_does(gpu, tiny, tiny_tflite, images):
    report = verify(tiny, tiny_tflite, images, runtime="gpu")
    assert report.ok and report.max_error < 1e-5
    assert report.fully_delegated and report.fallbacks == () and report.device


def test_what_an_accelerator_refuses_is_named_with_its_reason(
    gpu, tiny, tiny_tflite, images, tmp_path
):
    tree = unpack(tiny_tflite.read_bytes())
    shrink = next(
        operation.builtinOptions
        for operation in tree.subgraphs[0].operators
        if isinstance(operation.builtinOptions, schema.StridedSliceOptionsT)
    )
    shrink.shrinkAxisMask = 2
    (tmp_path / "m.tflite").write_bytes(pack(tree))
    _, found = tflite_files.open_gpu(tmp_path / "m.tflite").run(images)
    assert not found.complete
    assert any("STRIDED_SLICE" in each and "shrink" in each for each in found.fallbacks)


def test_a_runtime_that_is_not_there_says_what_to_install(tiny_tflite, images, monkeypatch):
    monkeypatch.setenv("VK_ICD_FILENAMES", "/dev/null")
    with pytest.raises(RuntimeMissing, match="Expected a GPU"):  # a driver, and none
        tflite_files.open_gpu(tiny_tflite).run(images)
    for name in ("BROWSERS", "DRIVERS"):
        monkeypatch.setattr(tflite_files, name, ())
    for name in tflite_files.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeMissing, match="apt-get install chromium"):
        tflite_files.open_gpu(tiny_tflite).run(images)


def test_a_runtime_opens_its_own_format(tiny, tiny_tflite, images):
    with pytest.raises(ExportError, match=r"a \.tflite file: interpreter, compiled, gpu"):
        verify(tiny, tiny_tflite, images, runtime="hub")
    with pytest.raises(ExportError, match="does not run in a process of its own"):
        run_compiled(pathlib.Path("nothing.tflite"), images)


@pytest.fixture(params=["openvino", "mediapipe"])
def runtime(request):
    reason = f"the extra {request.param} is not installed: make test-runtimes"
    pytest.importorskip(request.param, reason=reason)
    return request.param


@pytest.mark.parametrize(
    "family", ["token", *(pytest.param(name, marks=pytest.mark.long) for name in ("map", "hybrid"))]
)
def test_every_precision_agrees(make_vit, images, tmp_path, family, runtime):
    # LiteRT's quantizer puts so many weights behind the model.
    model = make_vit(hidden_size=128, mlp_dim=512, num_layers=1, **FAMILIES[family])
    files = {name: tmp_path / f"{name}.tflite" for name in QUANTIZATIONS}
    to_tflite_files(model, files, calibration=images, probabilities=family == "map")
    for name, file in files.items():
        # Noise has classes that are almost equal, and processors round int8 differently.
        limits = THRESHOLDS[name]
        limits = dataclasses.replace(limits, agreement=0.0, cosine=limits.cosine - 0.01)
        report = verify(model, file, images, runtime=runtime, thresholds=limits)
        assert report.ok and (report.runtime, report.kind) == (runtime, name), report


def test_another_answer_is_noticed(tiny, tiny_tflite, make_vit, images, runtime):
    other = make_vit(num_layers=1)
    other.get_layer("head").kernel.assign(np.roll(other.get_layer("head").kernel, 1, axis=1))
    assert not verify(other, tiny_tflite, images, runtime=runtime).ok
