import keras
import numpy as np
import pytest

import keras_vit
from benchmarks.errors_in_runtimes import FAMILIES, small_model, with_noise
from keras_vit import export
from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.verification.subprocesses import measure
from tests.export.conftest import answer, skipped_without, verify

# The last takes an exporter's path of its own.
KINDS = [*FAMILIES, "masked"]
LIMITS = {"none": 1e-4, "float16": 2e-2, "dynamic": 0.3, "int8": 0.5, "int8-full": 1.5}
LIMITS |= {"int16x8": 0.3, "int8-int16": 0.5}
# Golden cases; the kinds of models that others have are `FAMILIES` too.
PUBLISHED = ["vit", "hybrid", "flexivit", "bit", "siglip", "hf_dinov2_registers"]


@pytest.fixture(scope="module", params=KINDS)
def model(request, make_vit):
    if request.param in FAMILIES:
        return small_model(request.param)
    encoder = make_vit(num_layers=1, representation_size=16)
    return with_noise(keras_vit.MaskedPatchPrediction(encoder))


@pytest.mark.long
def test_every_kind_of_model_becomes_every_artifact(model, images, tmp_path):
    files = {kind: tmp_path / f"{kind}.tflite" for kind in LIMITS}
    export.to_tflite(model, tmp_path, quantization=LIMITS, calibration=images)
    # Normalizing a mask decoder's cosines magnifies what 8 bits leave of them.
    limits = LIMITS | ({"int8-full": 2.5} if model.name == "segmenter" else {})
    for kind, limit in limits.items():
        report = verify(model, files[kind], images)
        assert report.kind == kind
        assert report.max_error < limit * report.scale, (kind, report)
    cost = measure(files["none"], threads=1, image_size=(32, 32), rounds=1)
    assert (cost["partitions"], cost["operations_outside_delegate"]) == (1, {})
    report = verify(model, export.to_hub(model, tmp_path / "module"), images)
    assert report.ok, report
    has_head = getattr(model, "arguments", {}).get("num_classes")
    assert report.output == ("logits" if has_head else "representation")


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["gpu", "openvino", "mediapipe", "onnx"])
def test_every_kind_of_model_is_right_in_every_runtime(model, images, tmp_path, runtime):
    write = export.to_onnx if runtime == "onnx" else export.to_tflite
    with skipped_without(RuntimeMissing):
        file = write(model, tmp_path / f"m.{write.__name__[3:]}")
        report = verify(model, file, images, runtime=runtime)
    assert report.ok and report.max_error < 1e-5 * report.scale, report
    assert report.fully_delegated is not False, report.fallbacks


def test_a_masked_encoder_is_the_encoder_that_was_trained(make_vit, images, tmp_path):
    encoder = make_vit(num_layers=1)
    masked = with_noise(keras_vit.MaskedPatchPrediction(encoder), seed=3)
    report = verify(encoder, export.to_tflite(masked, tmp_path / "m.tflite"), images)
    assert (report.output, report.images) == ("representation", len(images))
    assert report.max_error < 1e-5 * np.abs(answer(encoder, images, "representation")).max()


@pytest.mark.long
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_family_of_published_checkpoints(
    name, cases, golden, build_case, write_case, load_case, tmp_path
):
    case = cases[name]
    model = build_case(case)
    load_case(model, case, write_case(case, tmp_path), flexible=name == "flexivit")
    expected = np.array(case["logits"])
    model.save(tmp_path / "model.keras")
    saved = keras.saving.load_model(tmp_path / "model.keras")
    images = (golden.images_of(case) + 1) / 2
    logits = keras.ops.convert_to_numpy(saved(golden.images_of(case), training=False))
    assert np.abs(logits - expected).max() < 2e-5 * expected.std()
    for write, name in ((export.to_hub, "module"), (export.to_tflite, "model.tflite")):
        report = verify(model, write(model, tmp_path / name), images)
        assert report.ok, report
