"""The run that each cell of an ablation study changes.

A study is one file beside this one. `keras-vit ablation STUDY --workdir=DIR` trains its cells and
draws its figure; `keras-vit --config=ablation_STUDY:CELL[,SCALE] --workdir=DIR` trains one of them.

Scales:
    small: a Vision Transformer of 0.2 million parameters on CIFAR-10, for an hour on a CPU.
    paper: the model of the study with the recipe of Table 3 on ImageNet-21k, in place of
        JFT-300M, which is not public; 5-shot accuracy on ImageNet.
"""

import dataclasses
from collections.abc import Callable, Mapping

from ml_collections import ConfigDict

from keras_vit.training.config import default_config
from keras_vit.training.configs import pretrain

SCALES = ("small", "paper")

SMALL_MODEL = {
    "image_size": 32,
    "patch_size": 4,
    "hidden_size": 64,
    "mlp_dim": 128,
    "num_heads": 4,
    "num_layers": 4,
    "classifier": "token",
}
_OF_EVERY_MODEL = ("name", "image_size", "head_bias_init")

# (data set, split to choose examples from, split to classify) of linear few-shot accuracy.
FEW_SHOT = {
    "small": ("cifar10", "train[:10%]", "test"),
    "paper": ("imagenet2012", "train[:65000]", "validation"),
}


@dataclasses.dataclass(frozen=True)
class Study:
    """An ablation: configs that differ in what is studied.

    Attributes:
        title: of its table and figure.
        cells: function of a scale that returns {cell: config}, in the order of the table.
        evaluations: how many a run makes, where its course is looked at; 0 is one at the end.
        early_stopping: whether the weights of the best evaluation are scored instead of the last.
        paper: {cell: the paper's 5-shot accuracy in percent}, where it has one.
    """

    title: str
    cells: Callable[[str], dict[str, ConfigDict]]
    evaluations: int = 0
    early_stopping: bool = False
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def get_config(self, arg: str) -> ConfigDict:
        """Returns the config of "CELL" or "CELL,SCALE", the text after the colon of `--config`."""
        name, _, scale = (part.strip() for part in arg.partition(","))
        scale = scale or "small"
        if scale not in SCALES:
            raise ValueError(f"Expected a scale, {' or '.join(SCALES)}. Received: {scale!r}.")
        cells = self.cells(scale)
        if name not in cells:
            raise ValueError(f"Expected a cell, one of {', '.join(cells)}. Received: {name!r}.")
        return cells[name]


def _base_config(scale, model):
    if scale == "paper":
        return pretrain.get_config(f"{model},imagenet21k")
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


def config_of_model(scale: str, arguments: Mapping, model: str = "ViT-B/16") -> ConfigDict:
    """Returns the config of a scale with other `arguments` of the model.

    `model` is the name whose row of Table 3 is taken.
    """
    config = _base_config(scale, model)
    if arguments.get("name", "").startswith("BiT"):
        # A ResNet takes none of a Transformer's arguments.
        config.model = {key: config.model[key] for key in _OF_EVERY_MODEL if key in config.model}
    config.model.update(arguments)
    return config
