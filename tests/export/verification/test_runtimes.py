import dataclasses
import pathlib
import sys

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from keras_vit import export
from keras_vit.export.errors import ExportError, RuntimeMissing
from keras_vit.export.tflite.flatbuffer import pack, unpack
from keras_vit.export.tflite.quantization import QUANTIZATIONS
from keras_vit.export.verification import runtimes
from keras_vit.export.verification.report import THRESHOLDS
from keras_vit.export.verification.subprocesses import run_compiled
from keras_vit.training.evaluators.nearest_neighbors import directions
from tests.export.conftest import LABELS, answer, run, skipped_without, verify


def test_on_the_processor_it_computes_the_interpreters_bits(tiny, tiny_tflite, images):
    outputs, delegation = runtimes.open_compiled(tiny_tflite).run(images)
    np.testing.assert_array_equal(outputs, run(tiny_tflite, images))
    assert delegation.complete and delegation.device == "XNNPACK" and delegation.float16 is None


def test_what_an_accelerator_refuses_is_named_with_its_reason(gpu, tiny_tflite, images, tmp_path):
    tree = unpack(tiny_tflite.read_bytes())
    options = [operation.builtinOptions for operation in tree.subgraphs[0].operators]
    shrink = next(each for each in options if isinstance(each, schema.StridedSliceOptionsT))
    shrink.shrinkAxisMask = 2
    (tmp_path / "m.tflite").write_bytes(pack(tree))
    _, found = runtimes.open_gpu(tmp_path / "m.tflite").run(images)
    assert not found.complete
    assert any("STRIDED_SLICE" in each and "shrink" in each for each in found.fallbacks)


def test_a_runtime_opens_its_format_and_says_what_to_install(
    tiny, tiny_tflite, images, monkeypatch
):
    with pytest.raises(ExportError, match=r"a \.tflite file: interpreter, compiled, gpu"):
        verify(tiny, tiny_tflite, images, runtime="hub")
    with pytest.raises(ExportError, match="does not run in a process of its own"):
        run_compiled(pathlib.Path("nothing.tflite"), images)
    monkeypatch.setenv("VK_ICD_FILENAMES", "/dev/null")
    with pytest.raises(RuntimeMissing, match="Expected a GPU"):  # a driver, and none
        runtimes.open_gpu(tiny_tflite).run(images)
    for name in ("BROWSERS", "DRIVERS"):
        monkeypatch.setattr(runtimes, name, ())
    for name in runtimes.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeMissing, match="apt-get install chromium"):
        runtimes.open_gpu(tiny_tflite).run(images)
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    with pytest.raises(RuntimeMissing, match=r"keras-vit-16x16\[browser\]"):
        verify(tiny, tiny_tflite, images, runtime="browser")


@pytest.mark.parametrize("runtime", ["openvino", "mediapipe"])
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.long
def test_every_precision_agrees(make_vit, images, tmp_path, runtime, probabilities):
    pytest.importorskip(runtime, reason="make test-runtimes installs it")
    # LiteRT's quantizer puts so many weights behind the model.
    model = make_vit(hidden_size=128, mlp_dim=512, num_layers=1)
    files = {name: tmp_path / f"{name}.tflite" for name in QUANTIZATIONS}
    options = {"quantization": QUANTIZATIONS, "probabilities": probabilities}
    export.to_tflite(model, tmp_path, calibration=images, **options)
    for name, file in files.items():
        # Noise has classes that are almost equal, and processors round int8 differently.
        cosine = THRESHOLDS[name].cosine - 0.01
        limits = dataclasses.replace(THRESHOLDS[name], agreement=0.0, cosine=cosine)
        report = verify(model, file, images, runtime=runtime, thresholds=limits)
        assert report.ok and (report.runtime, report.kind) == (runtime, name), report


@pytest.mark.rows(("none", 0.999999), ("int8", 0.99))
def test_mediapipe_embeds_photos(quantization, least, make_vit, images, tmp_path):
    mediapipe = pytest.importorskip("mediapipe", reason="make test-runtimes installs it")
    from mediapipe.tasks.python import BaseOptions, vision

    model = make_vit(num_layers=1, num_classes=None, hidden_size=128, mlp_dim=512)
    file = tmp_path / "features.tflite"
    export.to_tflite(model, file, quantization=quantization, calibration=images)
    report = verify(model, file, images, runtime="mediapipe")
    assert report.ok and report.output == "representation" and report.cosine > least, report
    # Similarity on a phone is that of the model: the cosine that `keras-vit similar` takes.
    pixels = np.rint(255 * images[:2]).astype("uint8")
    photos = [mediapipe.Image(mediapipe.ImageFormat.SRGB, each) for each in pixels]
    options = vision.ImageEmbedderOptions(
        BaseOptions(model_asset_path=str(file)), l2_normalize=True
    )
    with vision.ImageEmbedder.create_from_options(options) as task:
        one, other = (task.embed(photo).embeddings[0] for photo in photos)
        found = vision.ImageEmbedder.cosine_similarity(one, other)
    first, second = directions(answer(model, pixels / np.float32(255)))
    np.testing.assert_allclose(found, first @ second, atol=1e-5 if quantization == "none" else 0.01)


def test_mediapipe_segments_photos(segmenter, segmenter_tflite, scenes):
    mediapipe = pytest.importorskip("mediapipe", reason="make test-runtimes installs it")
    from mediapipe.tasks.python import BaseOptions, vision

    report = verify(segmenter, segmenter_tflite, scenes, runtime="mediapipe")
    # It applies the softmax that the file asks for.
    assert report.ok and report.output == "probabilities" and report.max_error < 1e-5, report
    options = vision.ImageSegmenterOptions(
        BaseOptions(model_asset_path=str(segmenter_tflite)), output_category_mask=True
    )
    with vision.ImageSegmenter.create_from_options(options) as task:
        assert task.labels == LABELS
        pixels = np.rint(255 * scenes[0]).astype("uint8")
        photo = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=pixels)
        result = task.segment(photo)
        mask = result.category_mask.numpy_view().squeeze().copy()
    logits = answer(segmenter, pixels[None] / np.float32(255))[0]
    assert mask.shape == (32, 48) and (mask == logits.argmax(-1)).mean() > 0.99


def test_masks_agree_in_the_browser(with_browser, segmenter, segmenter_tflite, scenes):
    report = verify(segmenter, segmenter_tflite, scenes, runtime="browser")
    assert report.ok and report.agreement > 0.999 and report.max_error < 1e-4, report


@pytest.mark.rows(("browser", "WebAssembly", 2e-5), ("browser-gpu", "WebGPU", 1e-3))
def test_the_browser_agrees(runtime, device, limit, with_browser, tiny, tiny_tflite, images):
    with skipped_without(RuntimeMissing):
        report = verify(tiny, tiny_tflite, images, runtime=runtime)
    assert report.ok and report.fully_delegated and report.max_error < limit
    assert device in report.device and "Chromium" in str(report)
    # In float16, too, where a GPU computes.
    assert (report.float16_error is None) == (runtime == "browser")
    assert runtime == "browser" or 1e-5 < report.float16_error < 0.02 * report.scale


@pytest.mark.long
def test_pages_are_verified_by_the_file_inside(with_browser, tiny, images, tmp_path):
    page = export.to_web(tiny, tmp_path / "page.html", quantization="none", single_file=True)
    for runtime in ("interpreter", "browser"):
        assert verify(tiny, page, images, runtime=runtime).ok
    (tmp_path / "other.html").write_text("<!DOCTYPE html>")
    with pytest.raises(ExportError, match="without a model inside"):
        verify(tiny, tmp_path / "other.html", images)
