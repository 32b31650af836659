import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import export
from keras_vit.export.tflite.signatures import MAIN, Signature, calibration_samples
from keras_vit.training.evaluators.exported_files import interface_of
from tests.export.conftest import run


@pytest.fixture(scope="module")
def pictures():
    generator = np.random.default_rng(3)
    return {
        size: generator.uniform(0, 1, (2, *size, 3)).astype("float32")
        for size in ((48, 48), (24, 40))
    }


def test_several_sizes_share_the_weights_and_give_what_the_model_does(make_vit, pictures, tmp_path):
    model = make_vit()
    plain = export.to_tflite(model, tmp_path / "plain.tflite")
    file = export.to_tflite(model, tmp_path / "sizes.tflite", image_sizes=(48, (24, 40)))
    assert file.stat().st_size < 1.8 * plain.stat().st_size  # of graphs, this small
    any_size = model.any_resolution()
    for (height, width), images in pictures.items():
        expected = keras.ops.convert_to_numpy(any_size(images * 2 - 1))
        found = run(file, images, f"size_{height}x{width}")
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert interface_of(file)["image_size"] == [32, 32]


def test_ranges_are_calibrated_for_every_size(make_vit, images, pictures, tmp_path):
    model = make_vit(num_layers=1)
    file = tmp_path / "m.tflite"
    export.to_tflite(model, file, quantization="int8", calibration=images, image_sizes=(48,))
    expected = keras.ops.convert_to_numpy(model.any_resolution()(pictures[48, 48] * 2 - 1))
    assert np.abs(run(file, pictures[48, 48], "size_48x48") - expected).max() < 0.2


def test_a_convolutional_model_takes_any_size(randomize, pictures, tmp_path):
    arguments = {"num_layers": (1,), "width_factor": 0.5, "num_classes": 5}
    model = randomize(keras_vit.ResNetV2(**arguments, image_size=32))
    file = export.to_tflite(model, tmp_path / "m.tflite", image_sizes=(48,))
    larger = keras_vit.ResNetV2(**arguments, image_size=48)
    larger.set_weights(model.get_weights())
    expected = keras.ops.convert_to_numpy(larger(pictures[48, 48] * 2 - 1))
    np.testing.assert_allclose(run(file, pictures[48, 48], "size_48x48"), expected, atol=1e-5)


def test_a_model_that_knows_its_grid_is_refused(make_vit, tmp_path):
    model = make_vit(position_embedding="relative", num_layers=1)
    with pytest.raises(ValueError, match="one image size"):
        export.to_tflite(model, tmp_path / "m.tflite", image_sizes=(48,))
    with pytest.raises(ValueError, match="positive int"):
        export.to_tflite(make_vit(num_layers=1), tmp_path / "m.tflite", image_sizes=(0,))


def test_narrow_ranges_of_calibration_are_said(images, caplog):
    found = {MAIN: Signature(None, (1, 32, 32, 3), "logits")}
    calibration_samples(images, found)
    assert not caplog.text
    calibration_samples(0.4 + 0.1 * images, found)
    assert "pixels in [0.4, 0.5] alone" in caplog.text
