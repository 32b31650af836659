"""Your own photos, some dozens to some thousands: `--config=own_photos:FOLDER[,KEY=VALUE…]`.

FOLDER holds one sub-folder of photos for each class. A fifth of each class is held out, unless
there are folders train/ and test/ (or validation/, val/, dev/) above the classes.

In FOLDER's place stands the CSV file of a table of photos: one class, several labels or numbers of
each, see docs/own_tables.md. There also own_photos:labels:FOLDER, of photos that links put into
several classes.

With images/ and masks/ in FOLDER, PNG masks of the same names whose values are the numbers of
classes, it learns a class for every pixel: see docs/segmentation.md.

Keys:
    model: what to start from: a published name such as `augreg/Ti_16`, which is downloaded, a run
        directory or `.keras` file, or the name of a model such as `ViT-Ti/16`, with its weights
        given by `--config.checkpoint=FILE`. Without it, a small model trains from scratch, which
        is for trying things out: a few hundred photos teach it little. A run of the same classes
        keeps its head, so more photos go on from what it learned.
    size: image size in pixels; unless given, 96 from scratch, 224 from a published checkpoint, and
        that of a run or `.keras` file.
    steps: number of updates, 1,000 from scratch and 200 from a checkpoint.
    teacher: a run or `.keras` file of the same classes, whose answers a small model learns beside
        the labels: docs/distillation.md.

Training ends early when five evaluations are no better, and model.keras has the weights of the best
one: `--config.early_stopping.patience=0 --config.hand_over=last` changes that.

Everything else is overridden as usual, for example `--config.batch_size=16`.
"""

import logging
import re

from ml_collections import ConfigDict

from keras_vit.training import paper_tables
from keras_vit.training.config import default_config
from keras_vit.training.configs import finetune, parse_options
from keras_vit.training.data.sets import photo_sets
from keras_vit.training.data.sets.splits import HELD_OUT_FIFTH
from keras_vit.training.io.paths import absolute_path, read_path

logger = logging.getLogger("keras_vit")

_PREFIX = re.compile("^(folder|labels|csv):")
HELD_OUT = ("test", "validation", "valid", "val", "dev")
# For batches of 32, of the rates that the paper's sweeps try.
FINE_TUNING_LR = 0.003


def get_config(arg: str = "") -> ConfigDict:
    """Returns the config; see the module's text for `arg`."""
    # A comma may also be one in the folder's name.
    parts = arg.split(",")
    folders = (",".join(parts[:end]) for end in range(len(parts), 0, -1))
    folder = next((each for each in folders if _exists(_path_of(each))), parts[0])
    rest = [part.strip() for part in parts[1 + folder.count(",") :]]
    options = parse_options(rest, "own_photos", {"model": "", "size": 0, "steps": 0, "teacher": ""})
    path = _path_of(folder)
    if not folder.strip() or not _exists(path):
        raise ValueError(
            "Expected own_photos:FOLDER, with FOLDER holding one sub-folder of photos for each "
            f"class, or own_photos:TABLE, a CSV file. Received: {arg!r}, which does not exist."
        )
    config = default_config()
    is_linked = folder.strip().startswith("labels:")
    if is_linked and not _is_folder(path):
        raise ValueError(f"Expected labels:FOLDER, with links in it. Received: {arg!r}, a file.")
    table = None if _is_folder(path) else photo_sets.read_table(path)
    if table and table.kind != "label":
        # A column that is neither, such as a number of the row, would be learned as well.
        logger.info("%s: %s: %s.", path, table.kind, ", ".join(table.class_names))
    has_masks = not is_linked and all(_is_folder(path / name) for name in ("images", "masks"))
    config.dataset = f"{'masks' if has_masks else 'labels' if is_linked else 'folder'}:{path}"
    inside = path / "images" if has_masks else path
    splits = [
        each for each in HELD_OUT if all(_is_folder(inside / name) for name in ("train", each))
    ]
    if table:
        config.dataset = f"csv:{path}"
        splits = [each for each in HELD_OUT if {"train", each} <= {*table.splits}]
    config.train_split, config.eval_split = ("train", splits[0]) if splits else HELD_OUT_FIFTH
    config.update(batch_size=32, log_every_steps=20, eval_every_steps=100)
    config.update(hand_over="best", on_error="skip", checkpoint_every_minutes=1.0)
    # Photos of many megapixels are decoded once, and at a fraction of their size.
    config.cache, config.reduced_decoding.train = "auto", 2.0
    config.early_stopping.patience = 5
    config.optimizer.clip_norm = 1.0
    if options["model"]:
        _fine_tuning(config, options["model"])
    else:
        _from_scratch(config, options["size"] or 96)
    if options["teacher"]:
        config.distill.update(teacher=options["teacher"], temperature=2.0, label_weight=0.5)
    size = options["size"] or config.model.image_size
    config.model.image_size = size
    config.total_steps = options["steps"] or config.total_steps
    config.optimizer.warmup_steps = config.total_steps // 10
    config.train_preprocess = (
        f"decode|inception_crop({size}, area_min=0.2)|flip_lr|value_range(-1,1)"
    )
    # As `keras_vit.predict` and phones decode photos: all give the same answer.
    config.eval_preprocess = f"decode(precise=True)|resize({size})|value_range(-1,1)"
    if table and table.kind == "numbers":
        config.numbers.loss = "huber"
        # Neither mirrored nor cut: what is read or counted would be another number.
        config.train_preprocess = f"decode|resize({size})|value_range(-1,1)"
    has_labels = is_linked or bool(table and table.kind == "labels")
    if has_labels:
        config.several_labels.loss = "sigmoid"
    if has_masks:
        config.masks.decoder = "mask"
    if has_masks or has_labels:
        # Whole objects: a class that a small crop shows a part of is hard to tell.
        config.train_preprocess = (
            f"decode|inception_crop({size}, area_min=0.5)|flip_lr|value_range(-1,1)"
        )
    return config


def _path_of(folder):
    return absolute_path(_PREFIX.sub("", folder.strip()) or ".")


def _exists(path):
    return read_path(path, path.exists)


def _is_folder(path):
    return read_path(path, path.is_dir)


def _from_scratch(config, size):
    # Patches that do not fill an image would leave its last rows and columns out.
    filling = [side for side in range(6, 25) if size % side == 0] or [12]
    patch_size = min(filling, key=lambda side: abs(side - 12))
    config.model = {"image_size": size, "patch_size": patch_size, "position_embedding": "sincos_2d"}
    config.model.update(hidden_size=128, mlp_dim=256, num_heads=4, num_layers=4)
    config.total_steps = 1000
    config.optimizer.update(base_lr=1e-3, weight_decay=0.1)


def _fine_tuning(config, model):
    architecture, config.checkpoint = finetune.architecture_of(model)
    # A run or `.keras` file has its size.
    config.model = {"image_size": 224, **architecture}
    config.expects_checkpoint = True
    config.checkpoint_head = "auto" if config.checkpoint else "new"
    config.total_steps = 200
    momentum = paper_tables.TABLE_4_MOMENTUM
    config.optimizer.update(name="sgd", base_lr=FINE_TUNING_LR, momentum=momentum)
