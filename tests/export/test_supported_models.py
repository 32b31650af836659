"""What is handed over can be used."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.export import supported_models
from keras_vit.export.errors import ExportError
from keras_vit.export.hub.to_hub import to_hub
from keras_vit.export.supported_models import portable
from keras_vit.export.tflite.to_tflite import to_tflite
from keras_vit.export.verification.verify import verify
from keras_vit.models.find_and_replace_layers import inner_layers


@pytest.fixture
def diverged(make_vit):
    model = make_vit()
    kernel = model.get_layer("embedding").weights[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    return model


def test_no_export_of_a_diverged_model(diverged, tmp_path):
    for model in (diverged, keras_vit.MaskedPatchPrediction(diverged)):
        for export in (to_hub, to_tflite):
            with pytest.raises(ValueError, match=r"finite weights.*embedding/projection/kernel"):
                export(model, tmp_path / "out" / "artifact")
    assert not list(tmp_path.iterdir())


def test_other_channels_than_colors_are_refused(make_vit):
    with pytest.raises(ExportError, match="in_channels=1"):
        portable(make_vit(in_channels=1, num_layers=1))


def test_lora_of_keras_is_handed_over(make_vit, images, tmp_path):
    model = make_vit(num_layers=1)
    for _, layer, _ in inner_layers(model):
        if isinstance(layer, keras.layers.Dense):
            layer.enable_lora(2)
            layer.lora_kernel_b.assign(keras.random.normal(layer.lora_kernel_b.shape, seed=1))
    module = to_hub(model, tmp_path / "module")
    logits = tf.saved_model.load(str(module))(images)
    np.testing.assert_allclose(logits, model(2 * images - 1), atol=1e-5)
    assert verify(model, module, images, costs=False).ok


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_a_quantized_model_is_refused(make_vit, mode, tmp_path):
    model = make_vit(num_layers=1)
    model.quantize(mode)
    for write in (to_hub, to_tflite, keras_vit.save_checkpoint):
        with pytest.raises(ValueError, match=rf"model\.quantize\('{mode}'\) changed"):
            write(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_model_larger_than_a_file_can_be_is_refused_before_it_is_converted(
    make_vit, tmp_path, monkeypatch
):
    model = make_vit()
    monkeypatch.setattr(supported_models, "FILE_LIMIT", 4 * model.count_params())
    with pytest.raises(ExportError, match=r"less than .* GiB.*export\.to_hub"):
        to_tflite(model, tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(supported_models, "FILE_LIMIT", 4 * model.count_params() + 1)
    supported_models.require_single_file(model)
