"""A small Vision Transformer on real handwritten digits, in a minute on a CPU."""

from training.configuration import default_config


def get_config():
    """Returns the config: 1,438 training images of 8x8 pixels, embedded in scikit-learn."""
    config = default_config()
    config.model = {
        "name": "",
        "image_size": 16,
        "patch_size": 4,
        "hidden_size": 48,
        "mlp_dim": 96,
        "num_heads": 3,
        "num_layers": 4,
        "dropout_rate": 0.1,
    }
    config.dataset = "digits"
    config.train_split = "train"
    config.eval_split = "test"
    config.train_preprocess = "decode|resize(18)|random_crop(16)|value_range(-1,1)"
    config.eval_preprocess = "decode|resize(16)|value_range(-1,1)"
    config.batch_size = 64
    config.epochs = 30.0
    config.steps_per_call = 10
    config.log_every_steps = 50
    config.eval_every_steps = 200
    config.optimizer.base_lr = 2e-3
    config.optimizer.warmup_steps = 50
    config.optimizer.weight_decay = 0.05
    config.optimizer.clip_norm = 1.0
    return config
