import json
import pathlib
import re
import shutil
import zipfile
from unittest import mock

import pytest
from etils import epath

from benchmarks.errors_in_runtimes import with_noise
from keras_vit.__main__ import main
from keras_vit.training import data
from keras_vit.training.config import schema
from keras_vit.training.configs import finetune
from keras_vit.training.data.sets import fingerprint, known_datasets
from keras_vit.training.data.tf_data_batches import eval_dataset
from keras_vit.training.errors import Diverged, Interrupted, TrainingError, UsageError
from keras_vit.training.evaluators import classification
from keras_vit.training.io.atomic import atomic_file
from keras_vit.training.loop import trainer
from keras_vit.training.protocols import learning_rate_sweep as sweep
from keras_vit.training.protocols import train_unless_finished
from keras_vit.training.protocols.train_unless_finished import RunResult, computed_once, train_run
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos
from tests.training.runs import DATA, write_run_config

CONFIG = "finetune:ViT-Ti/16,digits,size=8,steps=10"
DEVELOPMENT = ("train[:90%]", "train[90%:]")
DIVERGED = Diverged("The loss became infinite.")


@pytest.fixture
def config():
    return finetune.get_config(CONFIG.partition(":")[2])


@pytest.fixture
def runs(monkeypatch):
    def put(by_rate):
        calls = []

        def train(config, workdir, dataset):
            rate, found = config.optimizer.base_lr, by_rate[config.optimizer.base_lr]
            name = "/".join(workdir.parts[-2:])
            calls.append((name, config.train_split, config.eval_split, config.seed, rate))
            (workdir / "checkpoints").mkdir(parents=True)
            if isinstance(found, Exception):
                raise found
            top1 = found + (0.01 * config.seed if config.eval_split == "test" else 0)
            text = f"step,eval_loss,eval_top1,eval_top5,eval_count\n5,,,,\n10,0.5,{top1},1,100\n"
            (workdir / "metrics.csv").write_text(text)

        monkeypatch.setattr(trainer, "train", train)
        return calls

    return put


def test_best_rate_is_trained_on_everything_with_every_seed(config, runs, digits, tmp_path, caplog):
    calls = runs({0.001: 0.5, 0.01: 0.8, 0.1: DIVERGED})
    caplog.set_level("INFO", logger="keras_vit")
    settings = {"rates": [0.001, 0.01, 0.1], "seeds": [0, 1, 2], "development": DEVELOPMENT}
    found = sweep.transfer(config, tmp_path, digits, **settings)
    assert calls == [
        *((f"development/lr_{rate}", *DEVELOPMENT, 0, rate) for rate in (0.001, 0.01, 0.1)),
        *((f"test/seed_{seed}", "train", "test", seed, 0.01) for seed in (0, 1, 2)),
    ]
    assert found.rate == 0.01 and found.accuracies == pytest.approx([80, 81, 82])
    assert config.train_split == "train"
    said = [each.getMessage() for each in caplog.records if each.name == "keras_vit"]
    assert len(said) == 6 and "diverged" in said[2]

    table = sweep.sweep_table(found, [("Table 2, JFT", "99.50 ± 0.06")], {"digits": [25.0]})
    development = [("0.001", "50.00", 100), ("0.01 (chosen)", "80.00", 100), ("0.1", "diverged", 0)]
    assert table.rows == [
        *(("development", f"rate {rate}", *scores) for rate, *scores in development),
        *(("test", f"rate 0.01, seed {seed}", f"8{seed}.00", 100) for seed in range(3)),
        ("test", "mean of 3", "81.00 ± 1.00", ""),
        ("digits", "mean of 1", "25.00", ""),
        ("paper", "Table 2, JFT", "99.50 ± 0.06", ""),
    ]
    # The second time nothing is trained, and the files are the same.
    assert sweep.transfer(config, tmp_path, digits, **settings) == found and len(calls) == 6
    sweep.write_sweep(found, table, tmp_path)
    assert "| test | mean of 3 | 81.00 ± 1.00 |  |" in (tmp_path / "sweep.md").read_text()
    assert "\ntest,mean of 3,81.00 ± 1.00,\n" in (tmp_path / "sweep.csv").read_text()
    assert (tmp_path / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_one_rate_needs_no_development(config, runs, digits, tmp_path):
    calls = runs({0.01: 0.7})
    settings = {"rates": [0.01], "seeds": [5], "development": DEVELOPMENT}
    found = sweep.transfer(config, tmp_path, digits, **settings)
    assert [call[1:] for call in calls] == [("train", "test", 5, 0.01)]
    assert found.development == {} and found.accuracies == pytest.approx([75.0])
    config.early_stopping.patience = 5
    with pytest.raises(UsageError, match=r"none is chosen on test\. Received: patience=5"):
        sweep.transfer(config, tmp_path, digits, **settings)


def test_what_is_replaced_between_runs_is_noticed(config, digits, tmp_path, monkeypatch):
    weights = tmp_path / "weights.npz"
    weights.write_bytes(b"first")
    config.checkpoint = str(weights)

    def begin(config, workdir, dataset):
        used = tmp_path / "used.npz"  # What the second run begins from is put back before it ends.
        used.write_bytes(b"first" if "seed_0" in str(workdir) else b"second")
        described = dataset.describe(config.train_split, config.eval_split)
        described["checkpoint"] = fingerprint.digest_of_checkpoint(str(used))
        workdir.mkdir(parents=True)
        write_run_config(workdir, data=described, **schema.complete(config).to_dict())

    monkeypatch.setattr(trainer, "train", begin)
    monkeypatch.setattr(train_unless_finished, "_scores", lambda *_: RunResult(0.5))
    settings = {"rates": [0.1], "seeds": [0, 1], "development": DEVELOPMENT}
    with pytest.raises(UsageError, match=r"seed_1 holds a run that began from other weights than"):
        sweep.transfer(config, tmp_path / "s", digits, **settings)
    run = tmp_path / "run"
    config.checkpoint, config.train_split, config.eval_split = "", "train[:1]", ""
    written = ["checkpoints/checkpoint-5/a", "checkpoints/.checkpoint-6/a", "config.json"]
    written += ["tensorboard/events.out.tfevents.17.host.1.0.v2", "metrics.csv", "model.keras"]
    foreign = ["checkpoints/checkpoint-05/a", "checkpoints/.checkpoint-of-mine/a", "notes.txt"]
    for others in ([], foreign):
        write_photos(tmp_path / "photos", ["a/1.png", "b/2.png"])
        photos = data.open_dataset(f"folder:{tmp_path / 'photos'}")

        def replace(*_, dataset, others=others):
            for name in (*written, *others):
                (run / name).parent.mkdir(parents=True, exist_ok=True)
                (run / name).touch()
            shutil.copy(tmp_path / "photos" / "b" / "2.png", tmp_path / "photos" / "a" / "1.png")
            raise Interrupted("Stopped on request.", 2)

        photos.require_unchanged()
        monkeypatch.setattr(trainer, "train", replace)
        with pytest.raises(TrainingError, match=r"1\.png was replaced while images"):
            train_run(config, run, photos)
        # It would be gone on from otherwise. What is another's stays.
        left = [file.relative_to(run).as_posix() for file in run.rglob("*") if file.is_file()]
        assert sorted(left) == sorted(others) and run.exists() == bool(others)
    refused = mock.Mock(side_effect=UsageError("Another run is there."))
    monkeypatch.setattr(trainer, "train", refused)
    with pytest.raises(UsageError, match="Another run"):
        train_run(config, run, photos)
    assert run.exists()


def test_a_base_is_known_without_the_date_of_its_file(tmp_path):
    saved, again, other = (tmp_path / f"{name}.keras" for name in ("saved", "again", "other"))
    tiny_vit(num_layers=1).save(saved)
    tiny_vit(num_layers=2).save(other)
    # As a finished run that is started again saves it.
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(again, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"{}" if name == "metadata.json" else old.read(name))
    digests = [fingerprint.digest_of_checkpoint(str(file)) for file in (saved, again, other)]
    assert digests[0] == digests[1] != digests[2]


def test_the_rate_is_the_best_on_average_and_of_equal_ones_the_smallest():
    scores = {0.03: RunResult(0.9), 0.01: RunResult(0.9), 0.003: RunResult(0.5)}
    assert sweep.choose_rate([scores]) == 0.01
    first = {0.1: RunResult(0.9), 0.2: RunResult(0.5), 0.3: RunResult(0.8)}
    second = {0.1: RunResult(0.1), 0.2: RunResult(0.6), 0.3: RunResult(diverged="NaN")}
    assert sweep.choose_rate([first, second]) == 0.2
    # 0.1 + 0.2 is more than 0.3 to a computer.
    parts = [{0.1: RunResult(one), 0.2: RunResult(two)} for one, two in ((0.3, 0.1), (0, 0.2))]
    assert sweep.choose_rate(parts) == 0.1


def test_divergence_is_a_result_and_other_failures_are_none(config, runs, digits, tmp_path):
    settings = {"seeds": [0], "development": DEVELOPMENT}
    calls = runs({1.0: DIVERGED, 2.0: DIVERGED, 3.0: TrainingError("A worker was lost.")})
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"Every rate diverged: 1, 2.*--rates"):
            sweep.transfer(config, tmp_path, digits, rates=[1.0, 2.0], **settings)
        assert len(calls) == 2
    with pytest.raises(TrainingError, match=r"chosen rate 1 diverged with seed 0"):
        sweep.transfer(config, tmp_path, digits, rates=[1.0], **settings)
    with pytest.raises(TrainingError, match="worker"):
        sweep.transfer(config, tmp_path / "other", digits, rates=[3.0], **settings)
    assert not list((tmp_path / "other").rglob("result.json"))


def test_a_finished_run_is_not_trained_again_nor_taken_for_another(config, runs, tmp_path, digits):
    calls, run = runs({0.01: 0.3649, 0.5: 0.0}), tmp_path / "run"
    result = train_run(config, run, digits)
    # As many of 100 as `metrics.csv` rounds to.
    assert result == RunResult(0.36, {"top5": 1.0, "loss": 0.5}, 100)
    assert train_run(config, run, digits) == result and len(calls) == 1
    assert not (run / "checkpoints").exists()

    # On other data, or from other weights, it is another run, whatever its owner accepts.
    file = run / "result.json"
    text = file.read_text().replace('"examples": 1438', '"examples": 1437')
    file.write_text(text.replace(digits.split("train").fingerprint["digest"], "0" * 32))
    for config.data_changed in ("refuse", "accept"):
        with pytest.raises(UsageError, match="train has 1438 examples instead of 1437"):
            train_run(config, run, digits)
    file.write_text(file.read_text().replace('\n  "checkpoint": ""', '\n  "checkpoint": "0"'))
    with pytest.raises(UsageError, match="began from other weights"):
        train_run(config, run, digits)
    begun = tmp_path / "begun"  # Nor does one that was stopped go on from others.
    begun.mkdir()
    write_run_config(begun, data=DATA | {"checkpoint": "0"}, seed=0)
    with pytest.raises(UsageError, match="began from other weights"):
        train_run(config, begun, digits)
    damaged = r"result\.json is damaged: .* Delete it to compute it"
    for content in ("", "[]", "\udcff"):
        (begun / "result.json").write_text(content, errors="surrogateescape")
        with pytest.raises(ValueError, match=damaged):
            computed_once(begun / "result.json", dict)
    config.optimizer.base_lr = 0.5
    with pytest.raises(UsageError, match=r"another config \(optimizer\.base_lr: 0\.01 -> 0\.5\)"):
        train_run(config, run, digits)
    config.strategy = "multiworker"
    with pytest.raises(UsageError, match="one process, which trains run after run"):
        train_run(config, run, digits)


def test_further_test_sets_are_scored_with_the_same_weights(digits, tmp_path, ram, config):
    model = with_noise(tiny_vit(image_size=8, num_layers=1, num_classes=10))
    folders = tmp_path, epath.Path(ram())
    for folder in folders:
        with atomic_file(folder / "test" / "seed_4" / "model.keras") as file:
            model.save(file)
    config.batch_size = 100
    test = digits.split("test")
    batches = eval_dataset(test, test.preprocess(config.eval_preprocess), batch_size=359)
    expected = {"digits": [pytest.approx(100 * classification.evaluate(model, batches)["top1"])]}
    for workdir in folders:
        assert sweep.score_further_test_sets(config, workdir, [digits], [4]) == expected
        stored = json.loads((workdir / "test" / "seed_4" / "digits.json").read_text())
        assert stored["count"] == 359
    # The second time, what is stored is taken.
    (tmp_path / "test" / "seed_4" / "digits.json").write_text(json.dumps({**stored, "top1": 0.25}))
    assert sweep.score_further_test_sets(config, tmp_path, [digits], [4]) == {"digits": [25.0]}


def test_results_of_a_model_on_a_data_set():
    table_2 = [("JFT-300M", "99.42 ± 0.03"), ("ImageNet-21k", "99.15 ± 0.03")]
    table_5 = [("ImageNet", "97.86"), ("ImageNet-21k", "99.16"), ("JFT-300M", "99.38")]
    assert sweep.published_results("ViT-L/16", "cifar10") == [
        *((f"Table 2, {data_set}", result) for data_set, result in table_2),
        *((f"Table 5, {data_set}", result) for data_set, result in table_5),
    ]
    hybrid = sweep.published_results("R50+ViT-L/16", "oxford_iiit_pet")
    epochs = {7: "97.03", 14: "97.36"}.items()
    assert hybrid == [(f"Table 6, JFT-300M, {number} epochs", each) for number, each in epochs]


def test_development_splits_and_photos_class_by_class(tmp_path):
    flowers, halves = "oxford_flowers102", "train[816:1020]+validation[0:1020]"  # 1020 images each.
    for dataset, split, share, *expected in (
        ("cifar10", "train", 0.5, "train[:98%]", "train[98%:]"),
        ("imagenet2012", "train", 0.5, "train[:99%]", "train[99%:]"),
        ("vtab/dtd", "train800val200", 0.5, "train800", "val200"),
        ("cifar10", "train[:5000]", 0.02, "train[0:4900]", "train[4900:5000]"),
        ("cifar10", "train[10%:20%]", 0.1, "train[5000:9500]", "train[9500:10000]"),
        (flowers, "train+validation", 0.6, "train[0:816]", halves),
    ):
        spec = known_datasets.row(dataset)
        opened = data.Dataset(spec, pathlib.Path())
        found = [*sweep.development_splits(opened, split, share)]
        assert found == expected
        assert sum(map(spec.num_examples, found)) == spec.num_examples(split)
    with pytest.raises(ValueError, match="at least 2 images"):
        sweep.development_splits(opened, "train[:1]", 0.1)
    kinds = [f"{part}/{kind}" for part in ("train", "test") for kind in "ab"]
    write_photos(tmp_path, [f"{kind}/{number}.png" for kind in kinds for number in range(40)])
    dataset = data.open_dataset(f"folder:{tmp_path}")
    for split, share, *expected in (
        ("train", 0.1, "train[0%:90%]", "train[90%:100%]"),
        ("train[50%:]", 0.5, "train[50%:75%]", "train[75%:100%]"),
        ("train[:-30%]", 0.1, "train[0%:63%]", "train[63%:70%]"),
        ("train[:7_0%]", 0.1, "train[0%:63%]", "train[63%:70%]"),
        ("train+test", 0.5, "train[0%:50%]+test[0%:50%]", "train[50%:100%]+test[50%:100%]"),
    ):
        assert [*sweep.development_splits(dataset, split, share)] == expected
        first, second = (dataset.split(text).photos for text in expected)
        assert sorted(first + second) == sorted(dataset.split(split).photos)
        assert all({photo.label for photo in part} == {0, 1} for part in (first, second))
    parts = sweep.development_splits(dataset, "train[10:-20]", 0.5)
    assert parts == ("train[10:35]", "train[35:60]")


def test_command_takes_rates_from_table_4(runs, data_dir, tmp_path, refused):
    calls = runs({rate: rate for rate in (0.001, 0.003, 0.01, 0.03)})
    arguments = [f"--config={CONFIG}", f"--workdir={tmp_path}", f"--data_dir={data_dir}"]
    assert main(["sweep", *arguments, "--seeds=0"]) == 0
    assert calls == [
        *((f"development/lr_{rate}", *DEVELOPMENT, 0, rate) for rate in (0.001, 0.003, 0.01, 0.03)),
        ("test/seed_0", "train", "test", 0, 0.03),
    ]
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"sweep.md", "sweep.csv", "sweep.png"}
    for split in ("", "none"):
        assert "eval_split" in refused("sweep", *arguments, f"--config.eval_split={split}")
    arguments[1] = "--workdir=s3://bucket/sweep"
    error = refused("sweep", *arguments, "--rates=0.1", "--seeds=0").splitlines()[-1]
    assert error.startswith("error: s3://bucket/sweep/test/seed_0/result.json cannot be read: ")


def test_runs_of_several_seeds_have_mean_and_deviation(runs, data_dir, tmp_path, printed, refused):
    calls, folder = runs({0.01: 0.8, 0.5: DIVERGED}), tmp_path / "runs"
    words = ["train", f"--config={CONFIG}", f"--data_dir={data_dir}", f"--workdir={folder}"]
    rate = "--config.optimizer.base_lr=0.01"
    shown = printed(*words, rate, "--seeds=0,1")
    assert calls == [(f"runs/seed_{seed}", "train", "test", seed, 0.01) for seed in (0, 1)]
    assert re.search(r"mean of 2 +│ +80\.50 ± 0\.71 │", shown)
    # What has finished is kept.
    printed(*words, rate, "--seeds=0,1,2")
    assert [call[0] for call in calls[2:]] == ["runs/seed_2"]
    rows = [*(f"seed_{seed},8{seed}.00,100" for seed in range(3)), "mean of 3,81.00 ± 1.00,"]
    written = folder / "seeds.csv"
    assert written.read_text().splitlines() == ["run,top-1 accuracy %,images", *rows]
    assert "another config (optimizer.base_lr: 0.01 -> 0.02)" in refused(
        *words, "--config.optimizer.base_lr=0.02", "--seeds=0,1"
    )
    diverged = printed(*words, "--config.optimizer.base_lr=0.5", "--seeds=7,8")
    assert diverged.count("│ diverged ") == 2 and "mean" not in diverged
    assert "Give --seeds in its place." in refused(*words, "--config.seed=1", "--seeds=0,1")
    expected = "two seeds or more, as --seeds=0,1,2, in a --workdir that is no run. Received: "
    assert f"{expected}3." in refused(*words, "--seeds=3")
    assert "Expected config.eval_split" in refused(*words, "--config.eval_split=", "--seeds=0,1")
    for seed in (0, 1):
        write_run_config(folder / f"seed_{seed}")
    # Commands on one run name those in the folder.
    inside = f"; runs in it: {folder}/seed_0, {folder}/seed_1."
    for command in ((words[0], words[-1], "--finish"), ("report", folder), ("evaluate", folder)):
        assert inside in refused(*command), command
    write_run_config(folder)
    assert f"{expected}{folder}, a run." in refused(*words, "--seeds=0,1")
    assert f"{expected}--finish." in refused(words[0], words[-1], "--finish", "--seeds=0,1")


@pytest.mark.rows(
    ("last", RunResult(0.6, {"top5": 1.0, "loss": 0.3}, 100)),
    # Of equal accuracies the one of less loss, on the data of the end.
    ("best", RunResult(0.7, {"top5": 1.0, "loss": 0.4}, 100)),
)
def test_the_model_that_is_handed_over_is_scored(
    hand_over, expected, config, digits, tmp_path, monkeypatch
):
    def train(config, workdir, dataset):
        workdir.mkdir()
        write_run_config(workdir, data=DATA | {"accepted_after": 1}, seed=0)
        rows = "1,0.1,1,1,90\n2,0.5,0.7,1,100\n3,0.4,0.7,1,100\n4,0.3,0.6,1,100\n"
        columns = "step,eval_loss,eval_top1,eval_top5,eval_count\n"
        (workdir / "metrics.csv").write_text(columns + rows)

    monkeypatch.setattr(trainer, "train", train)
    config.hand_over = hand_over
    assert train_run(config, tmp_path / "run", digits) == expected


def test_what_a_protocol_chooses_has_its_option(tmp_path, refused):
    for words, option, key in (
        (f"sweep --config={CONFIG}", "--rates", "optimizer.base_lr"),
        ("vtab ViT-Ti_16.npz", "--rates", "optimizer.base_lr"),
        ("vtab ViT-Ti_16.npz", "--tasks", "dataset"),
        ("ablation head", "--seeds", "seed"),
    ):
        error = refused(*words.split(), f"--workdir={tmp_path}", f"--config.{key}=0.5")
        message = f"Leave out --config.{key}: this protocol sets it in each run. Give {option} in"
        assert message in error and not [*tmp_path.iterdir()]
