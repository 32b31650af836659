"""The main job in half a minute: a small Vision Transformer on real handwritten digits.

AdamW, linear warm-up, cosine decay and clipping as in Table 3; random shifts, since a flipped
digit is another digit or none; fixed sine-cosine position embeddings, which a small data
set learns from faster than from learned ones (appendix D.3); smoothed labels, for so few epochs.
"""

from ml_collections import ConfigDict

from keras_vit.training.config import default_config


def get_config() -> ConfigDict:
    """Returns the config: 1,438 training images of 8x8 pixels, embedded in scikit-learn."""
    config = default_config()
    config.model = {"image_size": 32, "patch_size": 8, "position_embedding": "sincos_2d"}
    config.model.update(hidden_size=64, mlp_dim=128, num_heads=4, num_layers=2)
    config.dataset = "digits"
    config.eval_split = "test"
    config.train_preprocess = "decode|resize(32)|random_shift(2)|value_range(-1,1)"
    config.eval_preprocess = "decode|resize(32)|value_range(-1,1)"
    config.cache = "on"
    config.update(batch_size=128, eval_batch_size=120, label_smoothing=0.1)
    config.update(total_steps=1300, steps_per_call=25, log_every_steps=50, eval_every_steps=200)
    config.optimizer.update(base_lr=3e-3, warmup_steps=30, weight_decay=0.1, clip_norm=1.0)
    return config
