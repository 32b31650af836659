import keras
import numpy as np
import pytest
import scipy.stats

from keras_vit.__main__ import main
from keras_vit.training import data
from keras_vit.training.evaluators.few_shot import open_task
from keras_vit.training.inference.image_function import KerasFunction
from keras_vit.training.loop import trainer
from keras_vit.training.reporting import collect_run_results
from keras_vit.training.reporting.metrics_csv import read_metrics
from keras_vit.training.tasks import METRICS
from tests.tiny_vit import tiny_vit
from tests.training.data.helpers import write_photos

EVALUATED = {"eval_split": "test", "eval_batch_size": 8, "on_error": "raise"}
EVALUATED["eval_preprocess"] = "decode|resize(16)|value_range(-1,1)"


@pytest.mark.long
def test_a_page_is_of_the_weights_handed_over_and_of_its_photos(tiny, tmp_path, printed):
    rng, birds, run = np.random.default_rng(0), tmp_path / "photos", tmp_path / "run"
    names = [f"{bird}/{number}.png" for bird in ("crow", "owl") for number in range(8)]
    for split in ("train", "test"):
        write_photos(birds / split, names, lambda _: rng.integers(0, 255, (16, 16, 3)))
    # Of two classes the top five are always right: the loss decides.
    config = tiny(dataset=f"folder:{birds}", eval_split="test", total_steps=12, report=True)
    config.update({"mixup_p": 0.0, "eval_every_steps": 2, "hand_over": "best"})
    config.early_stopping.metric, config.optimizer.base_lr = "eval_top5", 0.02
    trainer.train(config, run)
    series = read_metrics(run / "metrics.csv")
    best = min(series["eval_loss"], key=lambda row: row[1])[0]
    accuracies = dict(series["eval_top1"])
    assert accuracies[best] != accuracies[2]
    page = (run / "report.html").read_text()
    assert f"<b>{100 * accuracies[best]:.2f} %</b>top-1 accuracy<" in page

    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0 and (run / "report.html").read_text() == page
    kept = (run / "evaluation.npz").read_bytes()
    for split in ("train", "test"):
        (birds / split / "crow").rename(birds / split / "zebra finch")
    # Drawn again, it stays of the photos that its figures are of.
    assert "has changed" in printed("report", run, stream="err")
    assert (run / "report.html").read_text() == page
    assert (run / "evaluation.npz").read_bytes() == kept


def test_evaluations_before_other_data_was_accepted_are_not_of_the_model():
    series = {  # Of equal accuracies the one of less loss.
        "eval_top1": [(10, 1.0), (15, 0.2), (20, 0.2), (30, 0.1)],
        "eval_loss": [(10, 0.1), (15, 3.0), (20, 2.0), (30, 3.0)],
        "eval_count": [(10, 20), (15, 20), (20, 20), (30, 20)],
    }
    config = {"data": {"accepted_after": 10}, "hand_over": "best", "total_steps": 30}
    config["early_stopping"] = {"metric": "eval_top1"}
    tiles = {"top-1 accuracy": "20.00 %", "last top-1 accuracy, at step 30": "10.00 %"}
    tiles |= {"images evaluated": "20", "steps": "30 of 30", "step of the model": "20"}
    tiles["95 % interval"] = "8.1 to 41.6 %"
    assert collect_run_results.figures_of(series, config) == tiles


@pytest.mark.parametrize("kind", ["folder", "labels", "csv", "masks", "ade20k"])
def test_the_title_of_a_page_names_photos_without_the_folders_above_them(kind):
    assert collect_run_results._short_name(f"{kind}:/home/me/birds") == "birds"


@pytest.mark.rows((4, 20), (0, 10), (10, 10), (24, 28), (1, 1))
def test_the_margin_of_a_share_is_that_of_scipy(hits, count):
    low, high = scipy.stats.binomtest(hits, count).proportion_ci(method="wilson")
    found = METRICS["eval_top1"].margin(hits / count, count)
    assert found == f"{100 * low:.1f} to {100 * high:.1f} %"
    assert not METRICS["eval_loss"].margin(0.5, count)
    # Neither counts images.
    assert not any(METRICS[f"eval_{name}"].margin(0.5, count) for name in ("miou", "pixels"))


def test_labels_of_a_page_are_outputs_of_the_model(bird_model, tmp_path):
    write_photos(tmp_path / "test", [f"{bird}/{k}.png" for k, bird in enumerate("aabbc")])
    model, names = keras.saving.load_model(bird_model), ["c", "a", "b"]
    model.class_names = names
    dataset = data.open_dataset(f"folder:{tmp_path}")
    found = collect_run_results._results(KerasFunction(model), EVALUATED, dataset)
    assert sorted(found["labels"]) == [0, 1, 1, 2, 2]


def test_images_of_several_labels_are_left_out(tmp_path):
    import tensorflow_datasets as tfds

    rng = np.random.default_rng(0)
    classes = tfds.features.Sequence(tfds.features.ClassLabel(names=["crow", "owl"]))
    features = {"image": tfds.features.Image(shape=(16, 16, 3)), "label": classes}
    images = rng.integers(0, 255, (5, 16, 16, 3)).astype("uint8")
    rows = zip(images, ([0], [1], [0, 1], [], [1]), strict=True)
    examples = [(key, {"image": image, "label": row}) for key, (image, row) in enumerate(rows)]
    splits = dict.fromkeys(("train", "test"), examples)
    features = tfds.features.FeaturesDict(features)
    store = tfds.dataset_builders.store_as_tfds_dataset
    store("several", "1.0.0", features, splits, data_dir=tmp_path)
    dataset = data.open_dataset("tfds:several", tmp_path)
    with pytest.raises(ValueError, match=r"one label .*Received: tfds:several, whose images have"):
        open_task(dataset)
    source = KerasFunction(tiny_vit(num_classes=2))
    assert sorted(collect_run_results._results(source, EVALUATED, dataset)["labels"]) == [0, 1, 1]


def test_half_a_row_at_the_end_is_passed_over_and_other_damage_named(tmp_path):
    file, good = tmp_path / "metrics.csv", b"step,loss,eval_top1\r\n10,0.5,\r\n20,0.25,0.75\r\n"
    for rest in (b"", b"30", b"30,0.1,0.9", b"30,0.1,0.91234\xff"):
        file.write_bytes(good + rest)
        expected = {"loss": [(10, 0.5), (20, 0.25)], "eval_top1": [(20, 0.75)]}
        assert read_metrics(file) == expected, rest
    rates = [(b"0.5", new) for new in (b"\0", b"\xff", b"1" * 200_000 + b"x")]
    cells = [(b"step", b"steps"), (b"20", b"x"), (b"0.25", b"one"), (b"0.5,", b"")]
    for old, new in (*cells, (b"0.5,", b"0.5,1,1"), *rates):
        file.write_bytes(good.replace(old, new))
        with pytest.raises(ValueError, match=r"metrics\.csv is damaged after \d rows: "):
            read_metrics(file)
