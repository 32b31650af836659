"""Segmentation without a download: which digit every pixel of a canvas belongs to.

Canvases are read at half their size, where each pixel of a digit is 2 x 2 pixels and one patch, so
that the linear decoder can draw its strokes. Random shifts, as in the quickstart, for so few
digits; pixels that come in have no class.
"""

from ml_collections import ConfigDict

from keras_vit.training.config import default_config


def get_config() -> ConfigDict:
    """Returns the config: 2,884 canvases of 721 digits from 0 to 4, embedded in scikit-learn."""
    config = default_config()
    config.model = {"image_size": 18, "patch_size": 2, "position_embedding": "sincos_2d"}
    config.model.update(hidden_size=64, mlp_dim=128, num_heads=4, num_layers=2)
    config.masks.decoder = "linear"
    config.dataset = "digits_masks"
    config.eval_split = "test"
    config.train_preprocess = "decode|resize(18)|random_shift(2)|value_range(-1,1)"
    config.eval_preprocess = "decode|resize(18)|value_range(-1,1)"
    config.cache = "on"
    config.update(batch_size=32, eval_batch_size=90)
    config.update(total_steps=1500, steps_per_call=25, log_every_steps=50, eval_every_steps=500)
    config.optimizer.update(base_lr=3e-3, warmup_steps=30, weight_decay=0.1, clip_norm=1.0)
    return config
