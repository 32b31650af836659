"""TFLite files in OpenVINO and in MediaPipe, whatever their precision."""

import dataclasses

import numpy as np
import pytest

from keras_vit import export
from keras_vit.export.tflite.quantization import QUANTIZATIONS
from keras_vit.export.tflite.to_tflite import to_tflite_files
from keras_vit.export.verification.report import THRESHOLDS

FAMILIES = {
    "token": {},
    "map": {"classifier": "map"},
    "hybrid": {"resnet": {"num_layers": (1,)}, "patch_size": 2},
}


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
        # Noise has classes that are almost equal.
        limits = dataclasses.replace(THRESHOLDS[name], agreement=0.0)
        settings = {"runtime": runtime, "thresholds": limits, "costs": False}
        report = export.verify(model, file, images, **settings)
        assert report.ok and (report.runtime, report.kind) == (runtime, name), report


def test_another_answer_is_noticed(make_vit, images, tmp_path, runtime):
    file = export.to_tflite(make_vit(), tmp_path / "m.tflite")
    other = make_vit()
    other.get_layer("head").kernel.assign(np.roll(other.get_layer("head").kernel, 1, axis=1))
    report = export.verify(other, file, images, runtime=runtime, costs=False)
    assert not report.ok and report.runtime == runtime, report
