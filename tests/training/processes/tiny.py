"""A small run with everything random in it: dropout, shuffling, augmentation, MixUp."""

from keras_vit.training.config import default_config


def get_config():
    config = default_config()
    config.model = {
        "image_size": 16,
        "patch_size": 4,
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_heads": 2,
        "num_layers": 1,
        "dropout_rate": 0.1,
    }
    config.dataset = "digits"
    config.eval_split = "test[:50]"
    config.train_preprocess = "decode|resize(20)|random_crop(16)|value_range(-1,1)"
    config.eval_preprocess = "decode|resize(16)|value_range(-1,1)"
    config.batch_size = 16
    config.mixup_p = 0.2
    config.total_steps = 200
    config.ema_decay = 0.9
    config.optimizer.warmup_steps = 5
    config.optimizer.weight_decay = 0.1
    config.optimizer.clip_norm = 1.0
    config.steps_per_call = 4
    config.log_every_steps = 20
    config.eval_every_steps = 100
    config.checkpoint_every_steps = 10
    config.report = False
    return config
