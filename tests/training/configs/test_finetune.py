"""The fine-tuning recipe says what Table 4 and the text say."""

import pytest

import keras_vit
from keras_vit.training.config.schema import complete
from keras_vit.training.configs import finetune
from keras_vit.training.errors import UsageError
from tests.run_config import write_run_config


@pytest.mark.parametrize(
    "dataset, steps, warmup",
    [
        ("imagenet2012", 20_000, 500),
        ("cifar10", 10_000, 500),
        ("oxford_flowers102", 500, 100),
        ("pets", 500, 100),
        ("vtab/caltech101", 2_500, 500),
        ("folder:/data/birds", 10_000, 500),
    ],
)
def test_rows_of_table_4(dataset, steps, warmup):
    config = complete(finetune.get_config(f"ViT-B/16,{dataset}"))
    assert config.total_steps == steps and config.batch_size == 512
    assert config.model.to_dict() == {"name": "ViT-B/16", "image_size": 384, "dropout_rate": 0.0}
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.momentum, optimizer.schedule) == ("sgd", 0.9, "cosine")
    assert (optimizer.base_lr, optimizer.warmup_steps) == (0.01, warmup)
    assert (optimizer.weight_decay, optimizer.clip_norm, config.ema_decay) == (0.0, 1.0, 0.0)
    assert config.eval_preprocess == "decode|resize(384)|value_range(-1,1)"
    assert config.loss == "softmax" and config.eval_split == "test"
    expected = "train800val200" if dataset.startswith("vtab/") else "train"
    assert config.train_split == expected


@pytest.mark.parametrize("model, size", [("ViT-L/16", 512), ("ViT-H/14", 518)])
def test_imagenet_in_table_2(model, size):
    config = finetune.get_config(f"{model},imagenet2012,table2=true")
    assert (config.model.image_size, config.ema_decay) == (size, 0.9999)
    assert config.model.dropout_rate == 0.1
    assert f"random_crop({size})" in config.train_preprocess
    assert f"resize({size})" in config.eval_preprocess


def test_a_shorter_run_has_a_shorter_warmup_and_a_resnet_no_dropout():
    config = finetune.get_config("BiT-R50x1,cifar10,steps=200,size=32")
    assert (config.total_steps, config.optimizer.warmup_steps) == (200, 10)
    assert config.model.to_dict() == {"name": "BiT-R50x1", "image_size": 32}


@pytest.mark.parametrize(
    "arg, expected",
    [
        ("ViT-B/16,cifar10", "resize(448)|random_crop(384)|flip_lr"),
        ("ViT-B/16,cifar10,crop=inception", "inception_crop(384)|flip_lr"),
        ("ViT-B/16,vtab/svhn", "resize(448)|random_crop(384)"),
        ("ViT-B/16,vtab/eurosat", "resize(448)|random_crop(384)|flip_lr"),
        ("ViT-B/16,vtab/dsprites_location", "resize(384)"),
        ("ViT-B/16,cifar10,size=24,crop=none", "resize(24)|flip_lr"),
    ],
)
def test_augmentation_never_changes_the_label(arg, expected):
    config = finetune.get_config(arg)
    assert config.train_preprocess == f"decode|{expected}|value_range(-1,1)"


def test_a_run_directory_gives_architecture_and_weights_but_no_head(tmp_path):
    model = {"name": "ViT-Ti/16", "image_size": 32, "patch_size": 4, "dropout_rate": 0.1}
    head = {"representation_size": 192, "head_bias_init": -10.0}
    write_run_config(tmp_path, model=model | head)
    config = finetune.get_config(f"{tmp_path},cifar10,size=48")
    assert config.checkpoint == str(tmp_path)
    assert config.model.to_dict() == model | {"image_size": 48, "dropout_rate": 0.0}


def test_a_saved_model_gives_its_architecture(vit, tmp_path):
    vit.get_layer("embedding").trainable = False
    vit.save(tmp_path / "m.keras")
    config = finetune.get_config(f"{tmp_path / 'm.keras'},cifar10,size=24")
    arguments = {"name": "", **vit.arguments, "image_size": 24}
    for key in ("num_classes", "representation_size", "head_bias_init"):
        del arguments[key]
    assert config.model.to_dict() == arguments
    assert config.checkpoint == str(tmp_path / "m.keras")
    copy = keras_vit.VisionTransformer(**{**config.model, "name": None, "num_classes": 3})
    assert len(copy.trainable_weights) == len(copy.weights)


@pytest.mark.parametrize(
    "arg, message",
    [
        ("ViT-B/16", r"finetune:MODEL,DATASET"),
        ("ViT-B/16,cifar10,rate=1", "KEY one of size, steps, crop, table2"),
        ("ViT-B/16,cifar10,crop=five", "resize, inception, none"),
    ],
)
def test_errors_name_what_was_expected(arg, message):
    with pytest.raises((UsageError, ValueError), match=message):
        finetune.get_config(arg)
