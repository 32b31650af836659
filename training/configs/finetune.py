"""Fine-tuning as in Table 4: `--config=finetune:MODEL,DATASET[,KEY=VALUE…]`.

MODEL is a name such as `ViT-B/16`, with its weights given by `--config.checkpoint=FILE`, or a
published name such as `augreg/B_16`, a run directory, a `.keras` file or a folder of Hugging Face,
whose architecture and weights are taken. DATASET is one of Table 4, `vtab/TASK`, or your own, which
is trained like CIFAR.

Keys for what several values of the config depend on:
    size: image size in pixels, 384 unless said otherwise.
    steps: number of updates, as in Table 4; the warm-up is shortened with it.
    crop: `resize` (random crop of an image resized to 7/6 of the size: BiT's, the paper's),
        `inception` (the released code's) or `none`.
    table2: `true` for the settings of ImageNet's row in Table 2: 512 pixels (518 for patches of
        14) and Polyak averaging with a factor of 0.9999.

Everything else is overridden as usual, for example `--config.optimizer.base_lr=0.003`, or
`--config.accumulation_steps=8` where a batch of 512 does not fit.
"""

from typing import Any

from ml_collections import ConfigDict

from keras_vit.checkpoints.published_weights import published
from keras_vit.name_suggestions import did_you_mean, require_one_of
from keras_vit.training import paper_tables
from keras_vit.training.config import default_config
from keras_vit.training.configs import parse_argument
from keras_vit.training.data.sets.known_datasets import full_name
from keras_vit.training.errors import UsageError
from keras_vit.training.io.paths import any_path
from keras_vit.training.source_facts import saved_arguments, without_model
from keras_vit.variants import EVERY_NAME, arguments_of

# The paper gives no rate per data set; this one is tried on every data set of Table 4.
BASE_LR = 0.01
# The released configurations fine-tune these with dropout, the other models without.
DROPOUT = {"ViT-L/16": 0.1, "ViT-H/14": 0.1, "R50+ViT-B/16": 0.1, "R50+ViT-L/32": 0.1}
# The head of pre-training is removed (appendix B.1.1).
_PRE_TRAINING_HEAD = ("num_classes", "representation_size", "head_bias_init")
_POLYAK = 0.9999


def get_config(arg: str) -> ConfigDict:
    """Returns the config; see the module's text for `arg`."""
    defaults = {"size": 0, "steps": 0, "crop": "", "table2": False}
    model, dataset, options = parse_argument(arg, "finetune", defaults)
    dataset = full_name(dataset)
    architecture, checkpoint = architecture_of(model)
    row = row_of_table_4(dataset)

    size = paper_tables.TABLE_4_IMAGE_SIZE
    if options["table2"]:
        size = 518 if model.endswith("/14") else 512
    size = options["size"] or size
    steps = options["steps"] or row.steps
    task = next((task for task in paper_tables.VTAB if f"vtab/{task.name}" == dataset), None)
    crop = options["crop"] or ("none" if task and task.group == "structured" else "resize")
    train_preprocess, eval_preprocess = _preprocessing(size, crop, flip=task is None or task.flip)
    config = default_config()
    config.update(
        checkpoint=checkpoint,
        expects_checkpoint=True,
        model={**architecture, "image_size": size},
        dataset=dataset,
        train_split="train800val200" if task else "train",
        eval_split="test",
        train_preprocess=train_preprocess,
        eval_preprocess=eval_preprocess,
        batch_size=paper_tables.TABLE_4_BATCH_SIZE,
        total_steps=steps,
        loss="softmax",
        ema_decay=_POLYAK if options["table2"] else 0.0,
    )
    config.optimizer.update(
        name="sgd",
        base_lr=BASE_LR,
        schedule="cosine",
        warmup_steps=row.warmup_steps * steps // row.steps,
        momentum=paper_tables.TABLE_4_MOMENTUM,
        weight_decay=0.0,
        clip_norm=paper_tables.TABLE_4_CLIP_NORM,
    )
    return config


def row_of_table_4(dataset: str) -> paper_tables.FineTuning:
    """Returns the row of Table 4 for a data set's full name; others are trained like CIFAR."""
    name = "vtab" if dataset.startswith("vtab/") else dataset
    return paper_tables.TABLE_4.get(name, paper_tables.TABLE_4["cifar10"])


def _preprocessing(size, crop, flip):
    """Returns the operations of training and of evaluation, which resizes without cropping."""
    crops = {
        "resize": f"resize({round(size * 7 / 6)})|random_crop({size})",
        "inception": f"inception_crop({size})",
        "none": f"resize({size})",
    }
    require_one_of("crop", crop, crops)
    mirror = "|flip_lr" if flip else ""
    return (
        f"decode|{crops[crop]}{mirror}|value_range(-1,1)",
        f"decode|resize({size})|value_range(-1,1)",
    )


def architecture_of(model: str) -> tuple[dict[str, Any], str]:
    """Returns (the `model` part of a config, its checkpoint) of a name, run or `.keras` file.

    A published name is its own checkpoint.
    """
    if row := published(model):
        return {"name": row.model, **row.arguments}, model
    architecture = saved_arguments(model)
    if architecture is None:
        try:
            arguments_of(model)
        except ValueError as error:
            raise UsageError(
                f"{did_you_mean(model, EVERY_NAME)}Expected a run directory, a .keras file or the "
                f"name of a model, such as ViT-B/16. Received: {model}, "
                f"{without_model(any_path(model))}."
            ) from error
        return {"name": model} | _dropout(model), ""
    kept = {k: v for k, v in architecture.items() if k not in _PRE_TRAINING_HEAD}
    if kept.get("classifier") == "unpooled":
        kept["classifier"] = "gap"  # An image has one label, and these models no class token.
    return kept | _dropout(kept.get("name", "")), str(any_path(model))


def _dropout(name):
    if name.startswith(("BiT", "AxialResNet")):
        return {}  # A ResNet has none.
    return {"dropout_rate": DROPOUT.get(name, 0.0)}
