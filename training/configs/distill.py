"""Distillation: `--config=distill:STUDENT,DATASET,teacher=SOURCE[,KEY=VALUE…]`.

STUDENT is the name of a model such as `ViT-Ti/16` or `BiT-R50x1`, which starts from random weights.
Its teacher is a run, a `.keras` file, a published classifier or MODEL=CHECKPOINT, of the classes of
DATASET. Labels are not used.

Keys:
    teacher: the source; several are separated by `+`.
    size: image size in pixels; unless given, 224 for imagenet2012 and 128 for others.
    epochs: the shortest of the published lengths unless said otherwise.

The recipe is that of Beyer et al. (2022), "A good teacher is patient and consistent": a long run on
inception crops and flips, mixed with p = 1, as student and teacher see them. Its rates are of Adam
and a BiT-R50x1; a Vision Transformer has DeiT's instead, 5e-4 for a batch of 512, decay 0.05.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from keras_vit.training.config import default_config
from keras_vit.training.configs import parse_argument
from keras_vit.training.data.sets.known_datasets import full_name
from keras_vit.training.errors import UsageError


class _Row(NamedTuple):
    epochs: float
    batch_size: int
    temperature: float
    base_lr: float
    weight_decay: float  # of AdamW, which multiplies it with the rate; published / base_lr
    warmup_steps: int
    size: int


_ROWS = {
    "imagenet2012": _Row(300, 4096, 1, 0.03, 0.01, 5000, 224),
    "oxford_flowers102": _Row(10_000, 512, 10, 0.003, 0.1, 1500, 128),
    "oxford_iiit_pet": _Row(1000, 512, 5, 0.01, 0.1, 1500, 128),
}
_SPLITS = {"imagenet2012": ("train[:98%]", "validation")}
_RATE_OF_512, _DECAY = 5e-4, 0.05


def get_config(arg: str) -> ConfigDict:
    """Returns the config; see the module's text for `arg`."""
    defaults = {"teacher": "", "size": 0, "epochs": 0.0}
    student, dataset, options = parse_argument(arg, "distill", defaults)
    if not options["teacher"]:
        raise UsageError(
            "Expected distill:STUDENT,DATASET,teacher=SOURCE with a run, .keras file or published "
            f"classifier. Received: {arg!r}, without a teacher."
        )
    dataset = full_name(dataset)
    row = _ROWS.get(dataset, _ROWS["oxford_iiit_pet"])
    size = options["size"] or row.size
    config = default_config()
    config.model = {"name": student, "image_size": size}
    config.dataset = dataset
    config.train_split, config.eval_split = _SPLITS.get(dataset, ("train", "test"))
    config.train_preprocess = f"decode|inception_crop({size})|flip_lr|value_range(-1, 1)"
    config.eval_preprocess = (
        f"decode|resize_small({size * 256 // 224})|central_crop({size})|value_range(-1, 1)"
    )
    config.update(batch_size=row.batch_size, epochs=options["epochs"] or row.epochs, mixup_p=1.0)
    config.update(steps_per_call=50, log_every_steps=100, eval_every_steps=5000)
    config.distill.teacher = options["teacher"].replace("+", ",")
    config.distill.temperature = float(row.temperature)
    config.optimizer.update(warmup_steps=row.warmup_steps, clip_norm=1.0)
    if student.startswith("BiT"):
        config.optimizer.update(base_lr=row.base_lr, weight_decay=row.weight_decay)
        config.optimizer.first_moment_dtype = "bfloat16"
    else:
        config.optimizer.base_lr = _RATE_OF_512 * row.batch_size / 512
        config.optimizer.weight_decay = _DECAY
    return config
