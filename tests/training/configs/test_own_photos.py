"""The recipe for one's own photos."""

import logging

import pytest
from etils import epath

from keras_vit.training.commands import train
from keras_vit.training.config.schema import complete
from keras_vit.training.configs import finetune, own_photos
from keras_vit.training.errors import UsageError
from keras_vit.training.loop import trainer
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos


def fill(root, folders):
    write_photos(root, [f"{folder}/1.png" for folder in folders])


def test_a_fifth_is_held_out_unless_there_are_splits_in_a_store_too(tmp_path, ram):
    fill(tmp_path / "one", ["crow", "finch"])
    config = complete(own_photos.get_config(str(tmp_path / "one")))
    assert config.dataset == f"folder:{tmp_path / 'one'}"
    assert (config.train_split, config.eval_split) == ("train[:80%]", "train[80%:]")
    two = epath.Path(ram()) / "two"
    fill(two, ["train/crow", "val/crow", "train/finch", "val/finch"])
    config = own_photos.get_config(f"{two},size=48,steps=50")
    assert config.dataset == f"folder:{two}"
    assert (config.train_split, config.eval_split) == ("train", "val")
    assert (config.total_steps, config.optimizer.warmup_steps) == (50, 5)
    assert config.model.image_size == 48
    assert "inception_crop(48," in config.train_preprocess
    assert config.eval_preprocess == "decode(precise=True)|resize(48)|value_range(-1,1)"


def test_the_folder_is_found_from_any_place(tmp_path, monkeypatch):
    fill(tmp_path, ["crow", "finch"])
    monkeypatch.chdir(tmp_path.parent)
    assert own_photos.get_config(tmp_path.name).dataset == f"folder:{tmp_path}"
    fill(tmp_path.parent / "a, b", ["crow", "finch"])
    config = own_photos.get_config("a, b,steps=7")
    assert config.dataset == f"folder:{tmp_path.parent / 'a, b'}" and config.total_steps == 7
    for wrong in ("", "nowhere", "nowhere,size=3"):
        with pytest.raises(ValueError, match=r"Expected own_photos:FOLDER.*csv:FILE"):
            own_photos.get_config(wrong)
    with pytest.raises(UsageError, match="KEY one of model, size, steps"):
        own_photos.get_config(f"{tmp_path},epochs=3")


@pytest.mark.parametrize("config", ["own_photos:{}/photos", "finetune:{}/run,digits"])
def test_a_store_that_fails_is_named_once(
    ram, failing_store, monkeypatch, tmp_path, capsys, config
):
    def fail(*_):
        raise OSError("no route to host")

    monkeypatch.setattr(failing_store, "exists", fail, raising=False)
    monkeypatch.setattr(failing_store, "isdir", fail, raising=False)
    bucket = ram()
    assert train.main([f"--config={config.format(bucket)}", f"--workdir={tmp_path}"]) == 1
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "error:" in each)
    assert line.startswith(f"error: {bucket}/") and line.count("cannot be read") == 1


def test_from_a_checkpoint_the_rest_is_fine_tuning(tmp_path):
    fill(tmp_path, ["crow", "finch"])
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
    class Enough(Exception):
        pass

    def stop(self, stop_request):
        raise Enough

    monkeypatch.setattr(trainer._Run, "train", stop)

    def warnings_of(**changes):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "keras_vit"), pytest.raises(Enough):
            trainer.train(tiny(**changes), tmp_path / "run")
        return caplog.text

    assert finetune.get_config("ViT-B/16,cifar10").expects_checkpoint
    assert "starts from random weights" in warnings_of(expects_checkpoint=True)
    assert "random weights" not in warnings_of()
