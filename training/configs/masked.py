"""Masked patch prediction (appendix B.1.2): `--config=masked:MODEL,DATASET`.

MODEL is a name such as `ViT-B/16`, or `small` for a model that trains on CIFAR-10 in minutes on a
CPU; DATASET is any data set, whose labels are not used. The second argument may be
followed by `KEY=VALUE`, separated by commas:

    target: `mean_color` (the paper's choice), `downsized` or `pixels`.
    size: image size in pixels; 224, or 32 for the small model.
    steps: number of updates; the paper's million, or 2,000 for the small model. The warm-up is
        shortened with it.

Fine-tune what comes out like any checkpoint:
`--config=finetune:RUN,DATASET`, where RUN is the run directory.
"""

from ml_collections import ConfigDict

from keras_vit.training.config import default_config
from keras_vit.training.configs import parse_argument
from keras_vit.training.configs.ablation import SMALL_MODEL

STEPS = 1_000_000
BATCH = 4096
WARMUP = 10_000
BASE_LR = 2e-4


def get_config(arg: str = "small,cifar10") -> ConfigDict:
    """Returns the config; see the module's text for `arg`."""
    defaults = {"target": "mean_color", "size": 0, "steps": 0}
    model, dataset, options = parse_argument(arg, "masked", defaults)
    small = model == "small"
    size = options["size"] or (32 if small else 224)
    steps = options["steps"] or (2_000 if small else STEPS)

    config = default_config()
    config.dataset = dataset
    config.model = (SMALL_MODEL if small else {"name": model}) | {"image_size": size}
    config.model.num_classes = None
    config.masked.target = options["target"]
    # The augmentation of classification.
    config.train_preprocess = f"decode|inception_crop({size})|flip_lr|value_range(-1, 1)"
    config.update(batch_size=64 if small else BATCH, total_steps=steps)
    config.update(steps_per_call=10, log_every_steps=50 if small else 100)
    config.optimizer.update(name="adamw", schedule="cosine", base_lr=1e-3 if small else BASE_LR)
    config.optimizer.warmup_steps = min(WARMUP, steps // 20)
    return config
