"""The paper's ablations: studies whose cells change one thing in a run.

`keras-vit ablation STUDY --workdir=DIR` trains the cells of a study and draws its figure;
`keras-vit --config=ablation:STUDY/CELL[,SCALE] --workdir=DIR` trains one of them.

Scales:
    small: a Vision Transformer of 0.2 million parameters on CIFAR-10, for an hour on a CPU.
    paper: the model of the study with the recipe of Table 3 on ImageNet-21k, in place of
        JFT-300M, which is not public; 5-shot accuracy on ImageNet.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from keras_vit.name_suggestions import require_one_of
from keras_vit.training.config import default_config
from keras_vit.training.configs import pretrain
from keras_vit.training.paper_tables import TABLE_8

SCALES = ("small", "paper")

SMALL_MODEL: dict[str, Any] = {"image_size": 32, "patch_size": 4, "hidden_size": 64, "mlp_dim": 128}
SMALL_MODEL |= {"num_heads": 4, "num_layers": 4, "classifier": "token"}
_OF_EVERY_MODEL = ("name", "image_size", "head_bias_init")

# (data set, split to choose examples from, split to classify) of linear few-shot accuracy.
FEW_SHOT = {
    "small": ("cifar10", "train[:10%]", "test"),
    "paper": ("imagenet2012", "train[:65000]", "validation"),
}


@dataclasses.dataclass(frozen=True)
class Study:
    """An ablation: configs that differ in what is studied."""

    title: str  # of its table and figure
    # A function of a scale that returns {cell: config}, in the order of the table.
    cells: Callable[[str], dict[str, ConfigDict]]
    evaluations: int = 0  # of a run, where its course is looked at; 0 is one at the end
    early_stopping: bool = False  # whether the best evaluation's weights are scored, not the last
    # {cell: the paper's 5-shot accuracy in percent}, where it has one.
    paper: Mapping[str, float] = dataclasses.field(default_factory=dict)


def get_config(arg: str) -> ConfigDict:
    """Returns the config of "STUDY/CELL" or "STUDY/CELL,SCALE"."""
    name, _, scale = (part.strip() for part in arg.partition(","))
    study, _, cell = name.partition("/")
    scale = scale or "small"
    require_one_of("study", study, STUDIES)
    require_one_of("scale", scale, SCALES)
    cells = STUDIES[study].cells(scale)
    require_one_of("cell", cell, cells)
    return cells[cell]


def _config(scale, arguments, model="ViT-B/16"):
    """Returns the base of a scale with other arguments of the model; `model` has the recipe."""
    config = pretrain.get_config(f"{model},imagenet21k") if scale == "paper" else _small_config()
    if arguments.get("name", "").startswith("BiT"):
        # A ResNet takes none of a Transformer's arguments.
        config.model = {key: config.model[key] for key in _OF_EVERY_MODEL if key in config.model}
    config.model.update(arguments)
    return config


def _small_config():
    config = default_config()
    config.model = dict(SMALL_MODEL)
    config.update(dataset="cifar10", eval_split="test", batch_size=128, eval_batch_size=250)
    config.train_preprocess = "decode|inception_crop(32)|flip_lr|value_range(-1, 1)"
    config.eval_preprocess = "decode|resize(32)|value_range(-1, 1)"
    config.update(total_steps=1500, steps_per_call=25, log_every_steps=100)
    config.optimizer.update(base_lr=2e-3, warmup_steps=100, weight_decay=0.1, clip_norm=1.0)
    return config


def _position_cell(kind, placement):
    """Returns "1d_stem" for ("learned_1d", "stem"); the kinds of one placement go by themselves."""
    _, learned, dimensions = kind.rpartition("learned_")
    return f"{dimensions}_{placement}" if learned else kind


def _position(scale):
    return {
        _position_cell(kind, placement): _config(
            scale, {"position_embedding": kind, "position_placement": placement}
        )
        for kind, placement in TABLE_8
    }


# The paper's finding is that the mean of the tokens needs a smaller rate than the class token:
# 3e-4 instead of 8e-4. The cells keep that ratio.
_SMALLER_RATE = 3 / 8


def _head(scale):
    pooling = {"token": "token", "gap": "gap", "gap_small_rate": "gap"}
    cells = {cell: _config(scale, {"classifier": kind}) for cell, kind in pooling.items()}
    cells["gap_small_rate"].optimizer.base_lr *= _SMALLER_RATE
    return cells


# The paper's base has 8 layers, D = 1024, an MLP of 2048 and patches of 32 pixels; how far each
# line goes is known from the figure alone, so the factors here are chosen: depth up to the 64
# layers that the text names, the other lines by their cost. Heads keep their size.
_SHAPE = ("num_layers", "hidden_size", "mlp_dim", "num_heads", "patch_size")
_BASE_SHAPES = {"small": (4, 64, 128, 4, 8), "paper": (8, 1024, 2048, 16, 32)}
_WIDTH = ("hidden_size", "num_heads", "representation_size")
# {line of the figure: (what is scaled, factors)}
_LINES = {
    "depth": (("num_layers",), (0.5, 2, 4, 8)),
    "width": (_WIDTH, (0.5, 2)),
    "mlp": (("mlp_dim",), (0.5, 2, 4)),
    "patch": (("patch_size",), (0.5, 2)),
    "all": (("num_layers", "mlp_dim", *_WIDTH), (0.5, 2)),
}


def _shape(scale):
    """Returns {cell: config}; "base" lies on every line, "depth_2" at twice the depth."""
    base = dict(zip(_SHAPE, _BASE_SHAPES[scale], strict=True))
    if scale == "paper":
        base["representation_size"] = base["hidden_size"]
    shapes = {"base": base}
    for line, (keys, factors) in _LINES.items():
        for factor in factors:
            # A smaller patch is more compute: the sequence grows.
            by = 1 / factor if line == "patch" else factor
            scaled = {key: int(base[key] * by) for key in keys if key in base}
            shapes[f"{line}_{factor:g}"] = base | scaled
    return {cell: _config(scale, shape, "ViT-B/32") for cell, shape in shapes.items()}


_AXIAL = {"attention": "axial", "classifier": "gap"}
_AXIAL_MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "small": {
        "resnet": {"name": "BiT-R50x1", "num_layers": (1, 1, 1)},
        "vit_8": {"patch_size": 8},
        "vit_4": {"patch_size": 4},
        "axial_8": {"patch_size": 8, **_AXIAL},
        "axial_4": {"patch_size": 4, **_AXIAL},
    },
    "paper": {
        "vit_32": {"name": "ViT-B/32"},
        "vit_16": {"name": "ViT-B/16"},
        "axial_32": {"name": "Axial-ViT-B/32"},
        "axial_16": {"name": "Axial-ViT-B/16"},
    },
}


def _axial(scale):
    return {cell: _config(scale, arguments) for cell, arguments in _AXIAL_MODELS[scale].items()}


# The paper takes 9, 30, 90 and all of JFT's 300 million images. Every model is trained on a
# fraction with the same hyper-parameters and number of steps. Data sets are stored in random order,
# so that a leading part is a random subset; smaller subsets lie in larger ones.
PERCENTS = (3, 10, 30, 100)
# "b" has half of every hidden dimension.
_SIZED_MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "small": {
        "vit": {},
        "b": {"hidden_size": 32, "mlp_dim": 64},
        "resnet": {"name": "BiT-R50x1", "num_layers": (1, 1, 1)},
    },
    "paper": {
        "ViT-b": {
            "name": "ViT-B/32",
            "mlp_dim": 1536,
            "hidden_size": 384,
            "representation_size": 384,
        },
        "ViT-B": {"name": "ViT-B/32"},
        "ViT-L": {"name": "ViT-L/16", "representation_size": 1024},
        "R50x1": {"name": "BiT-R50x1"},
        "R152x2": {"name": "BiT-R152x2"},
    },
}
# {scale: (share that is trained on, split held out for early stopping)}
_HELD_OUT = {"small": (0.98, "train[98%:]"), "paper": (1.0, "dev")}


def _data_size(scale):
    """Returns {cell: config}; a cell is "MODEL_PERCENT"."""
    share, held_out = _HELD_OUT[scale]
    cells = {}
    for model, arguments in _SIZED_MODELS[scale].items():
        for percent in PERCENTS:
            config = cells[f"{model}_{percent}"] = _config(scale, arguments)
            config.train_split, config.eval_split = f"train[:{percent * share:g}%]", held_out
    return cells


STUDIES = {
    "position": Study(
        "Position embeddings (Table 8)",
        _position,
        paper={_position_cell(*key): 100 * accuracy for key, accuracy in TABLE_8.items()},
    ),
    # The figure of appendix D.3 shows seven epochs.
    "head": Study("Class token and global average pooling", _head, evaluations=7),
    "shape": Study("Transformer shape (Figure 8)", _shape),
    "axial": Study("Axial attention (Figure 12)", _axial),
    # The weights of the best accuracy on held-out images are kept: the paper's early stopping.
    "data_size": Study(
        "Data size (Figures 3 and 4)", _data_size, evaluations=10, early_stopping=True
    ),
}
