import keras_vit
from tests.tiny_vit import tiny_vit
from training.configs import finetune


def test_the_architecture_of_a_saved_model_with_frozen_layers(tmp_path):
    model = tiny_vit(image_size=8, hidden_size=8, mlp_dim=8, num_layers=1, num_classes=None)
    model.get_layer("embedding").trainable = False
    model.save(tmp_path / "frozen.keras")
    config = finetune.get_config(f"{tmp_path / 'frozen.keras'},digits,size=8")
    copy = keras_vit.VisionTransformer(**{**config.model, "name": None, "num_classes": None})
    assert copy.count_params() == model.count_params()
    assert len(copy.trainable_weights) == len(copy.weights)
