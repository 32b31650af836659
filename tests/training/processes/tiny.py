"""A small run with everything random in it: dropout, shuffling, augmentation, MixUp."""

from keras_vit.training.config import default_config


def get_config():
    config = default_config()
    config.model = {"image_size": 16, "patch_size": 4, "hidden_size": 16, "mlp_dim": 32}
    config.model.update(num_heads=2, num_layers=1, dropout_rate=0.1)
    config.update(dataset="digits", eval_split="test[:50]", batch_size=16, mixup_p=0.2)
    config.train_preprocess = "decode|resize(20)|random_crop(16)|value_range(-1,1)"
    config.eval_preprocess = "decode|resize(16)|value_range(-1,1)"
    config.optimizer.update(warmup_steps=5, weight_decay=0.1, clip_norm=1.0)
    config.update(total_steps=200, ema_decay=0.9, steps_per_call=4, report=False)
    config.update(log_every_steps=20, eval_every_steps=100, checkpoint_every_steps=10)
    return config
