import zlib
from unittest import mock

import pytest
from etils import epath

import keras_vit
from keras_vit.__main__ import main
from keras_vit.training import paper_tables
from keras_vit.training.config.overrides import load_config
from keras_vit.training.config.schema import DEFAULTS, complete, derive_steps, flatten
from keras_vit.training.configs import finetune, own_photos, pretrain
from keras_vit.training.data.preprocessing.parse_operations import parse
from keras_vit.training.errors import UsageError
from keras_vit.training.loop import trainer
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos
from tests.training.runs import write_run_config

BIRDS = ["crow/1.png", "finch/1.png"]


def test_rows_of_table_4_imagenet_in_table_2_and_a_shorter_run_of_a_resnet():
    cases = [("imagenet2012", 20_000, 500), ("cifar10", 10_000, 500), ("pets", 500, 100)]
    cases += [("vtab/caltech101", 2_500, 500), ("folder:/data/birds", 10_000, 500)]
    for dataset, steps, warmup in cases:
        config = complete(finetune.get_config(f"ViT-B/16,{dataset}"))
        assert config.total_steps == steps and config.batch_size == 512
        model = {"name": "ViT-B/16", "image_size": 384, "dropout_rate": 0.0}
        assert config.model.to_dict() == model
        optimizer = config.optimizer
        assert (optimizer.name, optimizer.momentum, optimizer.schedule) == ("sgd", 0.9, "cosine")
        assert (optimizer.base_lr, optimizer.warmup_steps) == (0.01, warmup)
        assert (optimizer.weight_decay, optimizer.clip_norm, config.ema_decay) == (0.0, 1.0, 0.0)
        assert config.eval_preprocess == "decode|resize(384)|value_range(-1,1)"
        assert config.loss == "softmax" and config.eval_split == "test"
        assert config.train_split == ("train800val200" if dataset.startswith("vtab/") else "train")
    for model, size in (("ViT-L/16", 512), ("ViT-H/14", 518)):
        config = finetune.get_config(f"{model},imagenet2012,table2=true")
        assert (config.model.image_size, config.ema_decay) == (size, 0.9999)
        assert config.model.dropout_rate == 0.1
        assert f"random_crop({size})" in config.train_preprocess
        assert f"resize({size})" in config.eval_preprocess
    config = finetune.get_config("BiT-R50x1,cifar10,steps=200,size=32")
    assert (config.total_steps, config.optimizer.warmup_steps) == (200, 10)
    assert config.model.to_dict() == {"name": "BiT-R50x1", "image_size": 32}


# Digests of what recipes change, so that every number of theirs changes on purpose only.
RECIPES = {
    "quickstart": 3259846568,
    "cifar10_small": 895009382,
    "masked": 1990539165,
    "masked:ViT-B/16,imagenet2012": 900583682,
    "pretrain:ViT-B/32,imagenet2012": 977951321,
    "pretrain:ViT-L/16,jft,data=tfds:x": 1795428529,
    "pretrain:R50+ViT-B/16,jft,data=tfds:x": 3090670451,
    "pretrain:ViT-S/16,imagenet21k,strength=default": 732479213,
    "finetune:ViT-B/16,cifar100": 1090980040,
    "finetune:ViT-H/14,imagenet2012,table2=true": 358574787,
    "finetune:BiT-R50x1,vtab/caltech101": 2144673683,
    "ablation:shape/all_0.5": 2579988137,
    "ablation:head/gap_small_rate": 1880726728,
    "ablation:shape/width_2,paper": 1167575839,
    "own_photos:{}": 4067926032,
    "own_photos:{},model=ViT-Ti/16,steps=50": 2680243665,
    "own_photos:{},teacher=runs/large": 4090137724,
    "distill:BiT-R50x1,imagenet2012,teacher=a+b": 1873069474,
    "distill:ViT-Ti/16,pets,teacher=a,size=96,epochs=30": 1877931042,
}


@pytest.mark.parametrize("text", RECIPES)
def test_a_recipe_changes_on_purpose_only(text, tmp_path):
    write_photos(tmp_path, BIRDS)
    config = flatten(load_config(text.format(tmp_path)))
    config["dataset"] = config["dataset"].replace(str(tmp_path), "")
    changed = sorted((key, each) for key, each in config.items() if each != DEFAULTS.get(key))
    assert zlib.crc32(repr(changed).encode()) == RECIPES[text], changed


def test_students_of_beyer_et_al_and_of_deit():
    published = complete(load_config("distill:BiT-R50x1,imagenet2012,teacher=a+b"))
    assert published.distill.to_dict() == {
        "teacher": "a,b",
        "temperature": 1.0,
        "loss": "kl",
        "label_weight": 0.0,
        "features": "",
        "features_weight": 1.0,
    }
    # A decay of 3e-4 beside the rate is 0.01 times the rate.
    optimizer = published.optimizer
    assert optimizer.base_lr * optimizer.weight_decay == pytest.approx(3e-4)
    assert (published.mixup_p, published.batch_size, published.epochs) == (1.0, 4096, 300)
    flowers = complete(load_config("distill:ViT-Ti/16,oxford_flowers102,teacher=a"))
    assert (flowers.distill.temperature, flowers.optimizer.base_lr) == (10.0, 5e-4)


def test_augmentation_never_changes_the_label():
    for arg, expected in (
        ("ViT-B/16,cifar10", "resize(448)|random_crop(384)|flip_lr"),
        ("ViT-B/16,cifar10,crop=inception", "inception_crop(384)|flip_lr"),
        ("ViT-B/16,vtab/svhn", "resize(448)|random_crop(384)"),
        ("ViT-B/16,vtab/eurosat", "resize(448)|random_crop(384)|flip_lr"),
        ("ViT-B/16,vtab/dsprites_location", "resize(384)"),
        ("ViT-B/16,cifar10,size=24,crop=none", "resize(24)|flip_lr"),
    ):
        assert finetune.get_config(arg).train_preprocess == f"decode|{expected}|value_range(-1,1)"


def test_a_run_or_a_saved_model_gives_its_architecture_and_weights_but_no_head(vit, tmp_path):
    model = {"name": "ViT-Ti/16", "image_size": 32, "patch_size": 4, "dropout_rate": 0.1}
    removed = {"representation_size": 192, "head_bias_init": -10.0}
    removed |= {"trainable": False, "dtype": "float16", "weights": "gone.npz"}
    for given, kept in (("map", "map"), ("unpooled", "gap")):
        write_run_config(tmp_path, model=model | removed | {"classifier": given})
        config = finetune.get_config(f"{tmp_path},cifar10,size=48")
        assert config.checkpoint == str(tmp_path)
        changed = {"image_size": 48, "dropout_rate": 0.0, "classifier": kept}
        assert config.model.to_dict() == model | changed
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


def test_every_row_of_table_3_is_a_config():
    rows = [(model, row) for row in paper_tables.TABLE_3 for model in row.models]
    for model, row in rows:
        config = pretrain.get_config(f"{model},{row.dataset},data=tfds:mine:1.0.0")
        assert (row, config.epochs) == paper_tables.row_of_table_3(model, row.dataset)
        for key in ("base_lr", "schedule", "weight_decay", "clip_norm"):
            assert config.optimizer[key] == getattr(row, key)
        assert config.model.get("dropout_rate", row.dropout) == row.dropout
        assert config.dataset == "tfds:mine:1.0.0"
        assert parse(config.train_preprocess) and parse(config.eval_preprocess)
    row, epochs = paper_tables.row_of_table_3("ViT-L/16", "jft")
    assert (row.base_lr, row.schedule, row.weight_decay, epochs) == (4e-4, "linear", 0.1, 14)
    assert paper_tables.row_of_table_3("ViT-L/16", "jft", 7)[1] == 7
    # A hidden layer is as wide as the model.
    assert pretrain.get_config("ViT-L/16,imagenet21k").model.representation_size == 1024
    assert "representation_size" not in pretrain.get_config("BiT-R50x1,jft,data=x").model
    for arg, examples, steps in (
        ("ViT-B/16,jft,data=x", 303_000_000, 517_822),
        ("ViT-L/16,jft,data=x", 303_000_000, 1_035_645),
        ("ViT-B/16,imagenet2012", 1_281_167, 93_835),
    ):
        config = complete(pretrain.get_config(arg))
        derive_steps(config, examples)
        assert config.batch_size == 4096
        assert config.total_steps == config.optimizer.total_steps == steps


def test_augreg_and_masked_patch_prediction():
    config = pretrain.get_config("ViT-S/16,imagenet2012,strength=default")
    assert 'augreg("medium2")' in config.train_preprocess
    assert config.train_split == "train[:99%]"
    assert config.optimizer.weight_decay * config.optimizer.base_lr == pytest.approx(1e-4)
    assert config.optimizer.first_moment_dtype == "bfloat16"
    derive_steps(config, 1_281_167 * 99 // 100)
    assert config.total_steps == 92_897
    strong = pretrain.get_config("ViT-B/16,imagenet21k,strength=strong2")
    assert 'augreg("strong2")' in strong.train_preprocess
    # Masked patch prediction as in appendix B.1.2.
    config = load_config("masked:ViT-B/16,imagenet2012")
    assert config.model.to_dict() == {"name": "ViT-B/16", "image_size": 224, "num_classes": None}
    assert (config.total_steps, config.batch_size) == (1_000_000, 4096)
    optimizer = config.optimizer
    found = optimizer.base_lr, optimizer.warmup_steps, optimizer.schedule
    assert found == (2e-4, 10_000, "cosine")
    assert config.masked.to_dict() == {"target": "mean_color", "corruption_rate": 0.5}


def test_a_fifth_is_held_out_unless_there_are_splits_in_a_store_too(tmp_path, ram):
    write_photos(tmp_path / "one", BIRDS)
    config = complete(own_photos.get_config(str(tmp_path / "one")))
    assert config.dataset == f"folder:{tmp_path / 'one'}"
    assert (config.train_split, config.eval_split) == ("train[:80%]", "train[80%:]")
    assert (config.hand_over, config.early_stopping.patience) == ("best", 5)
    two = epath.Path(ram()) / "two"
    write_photos(two, [f"{part}/{bird}" for part in ("train", "val") for bird in BIRDS])
    config = own_photos.get_config(f"{two},size=48,steps=50")
    assert config.dataset == f"folder:{two}"
    assert (config.train_split, config.eval_split) == ("train", "val")
    assert (config.total_steps, config.optimizer.warmup_steps) == (50, 5)
    assert config.model.image_size == 48 and "inception_crop(48," in config.train_preprocess
    patches = {48: 12, 32: 8, 100: 10, 97: 12}
    for size, patch in patches.items():
        assert own_photos.get_config(f"{two},size={size}").model.patch_size == patch
    assert config.eval_preprocess == "decode(precise=True)|resize(48)|value_range(-1,1)"


@pytest.mark.parametrize("config", ["own_photos:{}/photos", "finetune:{}/run,digits"])
def test_a_failing_store_is_named_once(ram, failing_store, monkeypatch, tmp_path, capsys, config):
    bucket, fail = ram(), mock.Mock(side_effect=OSError("no route to host"))
    monkeypatch.setattr(failing_store, "exists", fail, raising=False)
    monkeypatch.setattr(failing_store, "isdir", fail, raising=False)
    assert main(["train", f"--config={config.format(bucket)}", f"--workdir={tmp_path}"]) == 1
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "error:" in each)
    assert line.startswith(f"error: {bucket}/") and line.count("cannot be read") == 1


def test_the_folder_is_found_from_any_place_and_a_checkpoint_is_fine_tuned(tmp_path, monkeypatch):
    write_photos(tmp_path, BIRDS)
    write_photos(tmp_path / "a, b", BIRDS)
    monkeypatch.chdir(tmp_path)
    config = own_photos.get_config("a, b,steps=7")
    assert config.dataset == f"folder:{tmp_path / 'a, b'}" and config.total_steps == 7
    with pytest.raises(UsageError, match="KEY one of model, size, steps"):
        own_photos.get_config(f"{tmp_path},epochs=3")
    config = complete(own_photos.get_config(f"{tmp_path},model=ViT-Ti/16"))
    assert config.model.name == "ViT-Ti/16" and config.model.image_size == 224
    assert (config.optimizer.name, config.optimizer.base_lr) == ("sgd", 0.003)
    assert config.expects_checkpoint and not config.checkpoint
    config = complete(own_photos.get_config(f"{tmp_path},model=augreg/Ti_16,size=64"))
    assert (config.model.name, config.checkpoint) == ("ViT-Ti/16", "augreg/Ti_16")
    assert config.model.image_size == 64
    tiny_vit(patch_size=8, num_classes=2).save(tmp_path / "m.keras")
    config = complete(own_photos.get_config(f"{tmp_path},model={tmp_path / 'm.keras'}"))
    assert (config.model.image_size, config.checkpoint) == (16, str(tmp_path / "m.keras"))


def test_fine_tuning_from_random_weights_warns(tmp_path, caplog, tiny, monkeypatch):
    monkeypatch.setattr(trainer._Run, "train", lambda *_: 1 / 0)
    assert finetune.get_config("ViT-B/16,cifar10").expects_checkpoint
    for expects_checkpoint in (True, False):
        caplog.clear()
        with pytest.raises(ZeroDivisionError):
            trainer.train(tiny(expects_checkpoint=expects_checkpoint), tmp_path / "run")
        assert ("starts from random weights" in caplog.text) == expects_checkpoint


@pytest.mark.rows(
    ("own_photos:.,model=runs/nope", "file or the name .* runs/nope, which does not exist"),
    ("quickstrat", "^Did you mean quickstart.* masked, own_photos, .*: quickstrat, no such fi"),
    ("other/quickstart.py", "Received: other/quickstart.py, no such file"),
    ("quickstart:foo", "^Expected --config=quickstart, .* Received: quickstart:foo.$"),
    ("pretrain", "^Expected --config=pretrain:ARGUMENT, .* Received: pretrain.$"),
    ("cifar10_small:abc", "^--config=cifar10_small:abc: invalid literal"),
    ("ablation:head/abc", "^--config=ablation:head/abc: `cell` must be one of"),
    ("finetune:cifar10", "^Expected finetune:MODEL,DATASET"),
    ("finetune:ViT-B/16,cifar10,size=abc", "^size of finetune: expected a whole number"),
    ("finetune:ViT-B/16,cifar10,rate=1", "KEY one of size, steps, crop, table2"),
    ("finetune:ViT-B/16,cifar10,crop=five", "`crop` must be one of .*resize.*inception.*none"),
    ("distill:ViT-Ti/16,pets", "^Expected distill:STUDENT,DATASET,teacher=.*without a teacher"),
    ("pretrain:ViT-B/16", "DATASET one of imagenet2012, imagenet21k, jft"),
    ("pretrain:ViT-B/16,jft", "JFT-300M is not public"),
    ("pretrain:ViT-S/16,imagenet21k", "no row for ViT-S/16 on imagenet21k"),
    ("pretrain:ViT-B/16,jft,epochs=14,data=tfds:mine", "for 7 epochs. Received: 14"),
    ("pretrain:ViT-B/16,imagenet2012,strength=huge", "`strength` must be one of .*default.*none"),
    ("own_photos:nowhere,size=3", "Expected own_photos:FOLDER.*own_photos:TABLE"),
    ("own_photos:.,model=m.keras", r"Expected a \.keras file\. There is nothing at .*m\.keras"),
)
def test_a_wrong_use_is_one_line(text, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message) as caught:
        load_config(text)
    assert "\n" not in str(caught.value) and not capsys.readouterr().err
