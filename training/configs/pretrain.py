"""Pre-training as in Table 3: `--config=pretrain:MODEL,DATASET[,KEY=VALUE…]`.

MODEL and DATASET (`imagenet2012`, `imagenet21k` or `jft`) name a row of the table: `ViT-B/16`,
`R50+ViT-B/32`, `BiT-R50x1` and so on. Batches of 4096 and the number of steps follow from it.

Keys:
    epochs: one of the row's lengths; the longest unless said otherwise.
    data: name of the data to read instead. JFT-300M is not public: give your own builder,
        `data=tfds:my_dataset:1.0.0`, and the row's schedule is fitted to its size.
    strength: trains as AugReg does instead ("How to train your ViT?"), for imagenet2012 and
        imagenet21k, with one of its strengths: `none`, `light1`, … `strong2`, or `default` for
        the one it chose for the model.

The loss is the sigmoid cross-entropy over all classes, the head's bias starts near `-log(classes)`
and the hidden layer of the head is as wide as the model, as in the released files. Where a batch
does not fit, `--config.accumulation_steps=8` computes the same in parts.
"""

from ml_collections import ConfigDict

from keras_vit import variants
from keras_vit.name_suggestions import require_one_of
from keras_vit.training import paper_tables
from keras_vit.training.config import default_config
from keras_vit.training.configs import parse_argument

_SPLITS = {
    "imagenet2012": ("train", "validation"),
    "imagenet21k": ("train", "dev"),
    "jft": ("train", ""),
}
# AugReg: Adam with a decoupled decay of 1e-4 that is not scaled by the rate of 1e-3.
_AUGREG_RATE, _AUGREG_DECAY, _AUGREG_EPOCHS = 1e-3, 0.1, 300.0


def get_config(arg: str) -> ConfigDict:
    """Returns the config; see the module's text for `arg`."""
    defaults = {"epochs": 0, "data": "", "strength": ""}
    model, dataset, options = parse_argument(arg, "pretrain", defaults, _SPLITS)
    if dataset == "jft" and not options["data"]:
        raise ValueError(
            "JFT-300M is not public: name a builder of your own, such as "
            f"pretrain:{model},jft,data=tfds:my_dataset:1.0.0."
        )
    size = paper_tables.TABLE_3_IMAGE_SIZE
    row, epochs = _row(model, dataset, options)

    config = default_config()
    config.model = {"name": model, "image_size": size, "head_bias_init": row.head_bias}
    class_name, arguments = variants.arguments_of(model)
    if class_name == "VisionTransformer":
        config.model.representation_size = arguments["hidden_size"]
        config.model.dropout_rate = row.dropout
    config.dataset = options["data"] or dataset
    config.train_split, config.eval_split = _SPLITS[dataset]
    config.train_preprocess = f"decode|inception_crop({size})|flip_lr|value_range(-1, 1)"
    config.eval_preprocess = (
        f"decode|resize_small({size * 256 // 224})|central_crop({size})|value_range(-1, 1)"
    )
    config.update(batch_size=paper_tables.TABLE_3_BATCH_SIZE, epochs=float(epochs))
    config.update(loss="sigmoid", precision="mixed_bfloat16")
    config.update(steps_per_call=50, log_every_steps=100, eval_every_steps=5000)
    config.optimizer.update(
        name="adamw",
        base_lr=row.base_lr,
        schedule=row.schedule,
        warmup_steps=paper_tables.TABLE_3_WARMUP_STEPS,
        end_lr=1e-5 if row.schedule == "linear" else 0.0,
        weight_decay=row.weight_decay,
        clip_norm=row.clip_norm,
    )
    if options["strength"]:
        _train_as_augreg(config, model, dataset, options["strength"])
    return config


def _row(model, dataset, options):
    epochs = options["epochs"] or None
    if options["strength"] and dataset in paper_tables.AUGREG_CHOICES:
        # AugReg trains more models than Table 3 lists; of its row, only the head's bias counts.
        rows = [row for row in paper_tables.TABLE_3 if row.dataset == dataset]
        return rows[0], epochs or _AUGREG_EPOCHS
    return paper_tables.row_of_table_3(model, dataset, epochs)


def _train_as_augreg(config, model, dataset, strength):
    choices = paper_tables.AUGREG_CHOICES.get(dataset)
    if choices is None:
        raise ValueError(
            f"AugReg trains on {' and '.join(paper_tables.AUGREG_CHOICES)}, not {dataset}."
        )
    if strength == "default":
        strength = choices.get(model, choices[""])
    require_one_of("strength", strength, ("default", *paper_tables.AUGREG_STRENGTHS))
    size = config.model.image_size
    config.train_preprocess = (
        f'decode|inception_crop({size})|flip_lr|augreg("{strength}")|value_range(-1, 1)'
    )
    if dataset == "imagenet2012":
        config.train_split = "train[:99%]"
    else:
        config.model.representation_size = None
        config.model.classifier = "gap"
    config.model.dropout_rate = 0.0
    config.optimizer.update(base_lr=_AUGREG_RATE, schedule="cosine", end_lr=0.0, clip_norm=1.0)
    config.optimizer.update(weight_decay=_AUGREG_DECAY, first_moment_dtype="bfloat16")
