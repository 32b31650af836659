"""Every kind of model in every kind of artifact."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import export
from keras_vit.export.tflite.to_tflite import to_tflite_files
from keras_vit.export.verification.subprocesses import measure

MODELS = {
    "hybrid": {"resnet": {"num_layers": (1, 1)}, "patch_size": 1},
    "hybrid, root alone": {"resnet": {"num_layers": ()}, "patch_size": 4},
    "positions before every block": {"position_placement": "every", "classifier": "gap"},
    "one table before every block": {"position_placement": "shared"},
    "axial": {"attention": "axial", "classifier": "gap"},
    "map": {"classifier": "map"},
    "token beside the mean": {"classifier": "token_gap", "register_tokens": 2},
    "relative": {"position_embedding": "relative", "classifier": "gap"},
    "pre-training head": {"representation_size": 16, "gelu": "erf"},
}


# Of which each takes an exporter's path of its own.
ALWAYS = ("map", "masked", "positions before every block")
KINDS = [
    pytest.param(kind, marks=[] if kind in ALWAYS else pytest.mark.long)
    for kind in (*MODELS, "bit", "axial resnet", "masked")
]


@pytest.fixture(scope="module", params=KINDS)
def case(request, make_vit, randomize):
    name = request.param
    if name == "bit":
        return name, randomize(
            keras_vit.ResNetV2(num_layers=(1, 1), width_factor=0.5, num_classes=5, image_size=32)
        )
    if name == "axial resnet":
        arguments = {"num_layers": (1, 1), "width_factor": 0.5, "num_groups": 4}
        return name, randomize(keras_vit.AxialResNet(**arguments, num_classes=5, image_size=32))
    if name == "masked":
        encoder = make_vit(num_layers=1, representation_size=16)
        return name, randomize(keras_vit.MaskedPatchPrediction(encoder))
    return name, make_vit(num_layers=2 if "every" in name else 1, **MODELS[name])


def test_every_kind_of_model_becomes_every_artifact(case, images, tmp_path):
    name, model = case
    limits = {"none": 1e-4, "float16": 2e-2, "dynamic": 0.3, "int8": 0.5, "int8-full": 1.5}
    limits |= {"int16x8": 0.3, "int8-int16": 0.5}
    files = {kind: tmp_path / f"{kind}.tflite" for kind in limits}
    to_tflite_files(model, files, calibration=images)
    for kind, limit in limits.items():
        report = export.verify(model, files[kind], images, costs=False)
        assert report.kind == kind
        assert report.max_error < limit * report.scale, (kind, report)
    cost = measure(files["none"], threads=1, image_size=(32, 32), rounds=1)
    assert (cost["partitions"], cost["operations_outside_delegate"]) == (1, {})

    module = export.to_hub(model, tmp_path / "module")
    report = export.verify(model, module, images, costs=False)
    assert report.ok, report
    assert report.output == ("representation" if name == "masked" else "logits")


def test_every_kind_of_model_is_right_on_a_gpu_and_wholly_there(gpu, case, images, tmp_path):
    _, model = case
    file = export.to_tflite(model, tmp_path / "m.tflite")
    report = export.verify(model, file, images, runtime="gpu", costs=False)
    assert report.ok and report.max_error < 1e-5 * report.scale, report
    assert report.fully_delegated, report.fallbacks


def test_a_masked_encoder_is_the_encoder_that_was_trained(make_vit, randomize, images, tmp_path):
    encoder = make_vit(num_layers=1)
    masked = randomize(keras_vit.MaskedPatchPrediction(encoder), seed=3)
    file = export.to_tflite(masked, tmp_path / "m.tflite")
    representation = keras.Model(encoder.input, encoder.endpoints["representation"])
    expected = keras.ops.convert_to_numpy(representation(images * 2 - 1))
    report = export.verify(encoder, file, images, costs=False)
    assert (report.output, report.images) == ("representation", len(images))
    assert report.max_error < 1e-5 * np.abs(expected).max()
