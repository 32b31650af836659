"""A small Vision Transformer on CIFAR-10, for trying transfer on a CPU.

Pre-trains on all but the first 5,000 training images, which are left for few-shot evaluation and
fine-tuning: `--config=cifar10_small[:STEPS]`. The optimizer is Table 3's, the
augmentation the usual one of images this small.
"""

from ml_collections import ConfigDict

from keras_vit.training.config import default_config


def get_config(arg: str = "3000") -> ConfigDict:
    """Returns the config; `arg` is the number of updates."""
    config = default_config()
    config.model = {"image_size": 32, "patch_size": 4}
    config.model.update(hidden_size=96, mlp_dim=192, num_heads=3, num_layers=4)
    config.dataset = "cifar10"
    config.train_split = "train[5000:]"
    config.eval_split = "test"
    config.train_preprocess = "decode|pad(4)|random_crop(32)|flip_lr|value_range(-1,1)"
    config.eval_preprocess = "decode|resize(32)|value_range(-1,1)"
    steps = int(arg)
    config.update(batch_size=128, eval_batch_size=500)
    config.update(total_steps=steps, steps_per_call=20, log_every_steps=100)
    config.optimizer.update(base_lr=1e-3, warmup_steps=steps // 10, weight_decay=0.1, clip_norm=1.0)
    return config
