"""Segmenter's recipes: `--config=segmenter:MODEL,DATASET[,KEY=VALUE…]`.

MODEL is a published name such as `augreg/S_16`, a run or `.keras` file, or the name of a model such
as `ViT-S/16`, with its weights given by `--config.checkpoint=FILE`. DATASET has maps of classes:
`ade20k:FOLDER`, `cityscapes`, `oxford_iiit_pet_masks` or `masks:FOLDER`.

Keys:
    recipe: ade20k, pascal_context or cityscapes; unless given, that of DATASET, or ade20k.
    decoder: mask or linear.
    size: side of the crops in pixels, unless given the recipe's; the largest models had 640.
    modern: true trains by AdamW with a decay of the rate from layer to layer instead of SGD.

The original (Strudel et al., 2021, section 4.1) trains by SGD with a polynomial decay and without
weight decay. Evaluations of the run see whole images that are stretched to the crop's size; the
published protocol is `keras-vit evaluate RUN --windows=SHORT`, the short side of the recipe.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from keras_vit.name_suggestions import require_one_of
from keras_vit.training.config import default_config
from keras_vit.training.configs import finetune, parse_argument
from keras_vit.training.data.sets.known_datasets import full_name
from keras_vit.training.data.sets.splits import HELD_OUT_FIFTH


class _Row(NamedTuple):
    epochs: float
    batch_size: int
    base_lr: float
    short: int  # side that images are resized to, times 0.5 to 2
    long: int
    size: int  # of the crops


_ROWS = {
    "ade20k": _Row(64, 8, 1e-3, 512, 2048, 512),
    "pascal_context": _Row(256, 16, 1e-3, 520, 4160, 480),
    "cityscapes": _Row(216, 8, 1e-2, 1024, 2048, 768),
}
_END_LR = 1e-5
# AdamW has these for a batch of 16, as BEiT (Bao et al., 2021) segments with.
_MODERN_LR, _MODERN_DECAY, _LAYER_DECAY = 1e-4, 0.05, 0.75


def get_config(arg: str) -> ConfigDict:
    """Returns the config; see the module's text for `arg`."""
    defaults = {"recipe": "", "decoder": "mask", "size": 0, "modern": False}
    model, dataset, options = parse_argument(arg, "segmenter", defaults)
    dataset = full_name(dataset)
    if options["recipe"]:
        require_one_of("recipe", options["recipe"], _ROWS)
    recipe = options["recipe"] or dataset.partition(":")[0]
    chosen = _ROWS[recipe if recipe in _ROWS else "ade20k"]
    size = options["size"] or chosen.size
    config = default_config()
    config.model, config.checkpoint = finetune.architecture_of(model)
    config.model.update(image_size=size, stochastic_depth_rate=0.1, layer_norm_epsilon=1e-5)
    config.expects_checkpoint = True
    config.checkpoint_head, config.masks.decoder = "new", options["decoder"]
    config.dataset = dataset
    if dataset.startswith("ade20k:"):
        config.train_split, config.eval_split = "training", "validation"
    elif dataset.startswith("masks:"):
        config.train_split, config.eval_split = HELD_OUT_FIFTH
    else:
        config.train_split, config.eval_split = "train", "test"
    config.train_preprocess = (
        f"decode|resize_between({chosen.short}, {chosen.long}, 0.5, 2)|varied_crop({size})|flip_lr"
        f"|photometric|value_range(-1, 1)|pad_to({size})"
    )
    config.eval_preprocess = f"decode|resize({size})|value_range(-1, 1)"
    config.update(batch_size=chosen.batch_size, total_steps=0, epochs=float(chosen.epochs))
    config.update(log_every_steps=50, eval_every_steps=2000)
    if options["modern"]:
        rate = _MODERN_LR * chosen.batch_size / 16
        config.optimizer.update(name="adamw", base_lr=rate, weight_decay=_MODERN_DECAY)
        config.optimizer.update(warmup_steps=1500, schedule="linear", layer_decay=_LAYER_DECAY)
    else:
        config.optimizer.update(name="sgd", base_lr=chosen.base_lr, momentum=0.9, nesterov=True)
        config.optimizer.update(schedule="poly", end_lr=_END_LR)
    return config
