"""What the ablation studies share: the run that each of their cells changes.

A study is one file beside this one. `python -m training ablation STUDY --workdir=DIR` trains its
cells and draws its figure; `--config=training/configs/ablation_STUDY.py:CELL[,SCALE]` is one of
them as a config for `python -m training`.

Scales:
    small: a Vision Transformer of 0.2 million parameters on CIFAR-10, for an hour on a CPU.
    paper: the model of the study with the recipe of Table 3 on ImageNet-21k, in place of
        JFT-300M, which is not public; 5-shot accuracy on ImageNet.
"""

from training.config_keys import default_config
from training.configs import pretrain

SCALES = ("small", "paper")

SMALL_MODEL = {
    "name": "",
    "image_size": 32,
    "patch_size": 4,
    "hidden_size": 64,
    "mlp_dim": 128,
    "num_heads": 4,
    "num_layers": 4,
    "classifier": "token",
}


# (data set, split to choose examples from, split to classify) of linear few-shot accuracy.
FEW_SHOT = {
    "small": ("cifar10", "train[:10%]", "test"),
    "paper": ("imagenet2012", "train[:65000]", "validation"),
}


def base_config(scale, model="ViT-B/16"):
    """Returns the config of a scale; `model` is the name whose row of Table 3 is taken."""
    return {"small": _small, "paper": _paper}[scale](model)


def _small(model):
    config = default_config()
    config.model = dict(SMALL_MODEL)
    config.dataset = "cifar10"
    config.eval_split = "test"
    config.train_preprocess = "decode|inception_crop(32)|flip_lr|value_range(-1, 1)"
    config.eval_preprocess = "decode|resize(32)|value_range(-1, 1)"
    config.batch_size = 128
    config.eval_batch_size = 250
    config.total_steps = 1500
    config.steps_per_call = 25
    config.log_every_steps = 100
    config.optimizer.base_lr = 2e-3
    config.optimizer.warmup_steps = 100
    config.optimizer.weight_decay = 0.1
    config.optimizer.clip_norm = 1.0
    return config


def _paper(model):
    return pretrain.get_config(f"{model},imagenet21k")


def change(config, **overrides):
    """Returns `config` with nested values replaced; keys that are new are added."""
    for key, value in overrides.items():
        if isinstance(value, dict) and key in config:
            change(config[key], **value)
        else:
            config[key] = value
    return config


def cell_of(cells, arg):
    """Returns the config of "CELL" or "CELL,SCALE".

    Args:
        cells: function of a scale that returns {name: config}.
        arg: the text after the colon of `--config`.
    """
    name, _, scale = (part.strip() for part in arg.partition(","))
    scale = scale or "small"
    if scale not in SCALES:
        raise ValueError(f"Expected a scale, {' or '.join(SCALES)}. Received: {scale!r}.")
    of_scale = cells(scale)
    if name not in of_scale:
        raise ValueError(f"Expected a cell, one of {', '.join(of_scale)}. Received: {name!r}.")
    return of_scale[name]
