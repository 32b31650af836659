"""The page of a run shows the run's own classes, single labels, and the weights handed over."""

import numpy as np
import pytest

from keras_vit.training.commands import report
from keras_vit.training.loop import trainer
from keras_vit.training.reporting import collect_run_results
from keras_vit.training.reporting.metrics_csv import read_metrics
from tests.training.data.helpers import write_photos


@pytest.fixture
def birds(tmp_path):
    """A folder of crows and owls, all different."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("test", 4)):
        names = [f"{name}/{number}.png" for name in ("crow", "owl") for number in range(count)]
        write_photos(
            tmp_path / "photos" / split, names, lambda place: rng.integers(0, 255, (16, 16, 3))
        )
    return tmp_path / "photos"


def test_classes_that_changed_since_are_refused_and_what_is_kept_stays(birds, tiny, capsys):
    run = birds.parent / "run"
    config = tiny(dataset=f"folder:{birds}", eval_split="test", total_steps=8, mixup_p=0.0)
    trainer.train(config, run)
    assert report.main([str(run)]) == 0
    kept = (run / "evaluation.npz").read_bytes()
    for split in ("train", "test"):
        (birds / split / "crow").rename(birds / split / "zebra finch")
    capsys.readouterr()
    assert report.main([str(run)]) == 2
    said = capsys.readouterr().err
    assert "has changed" in said and "It lacks crow and has also zebra finch" in said
    assert (run / "evaluation.npz").read_bytes() == kept


def test_the_page_tells_of_the_weights_that_are_handed_over(birds, tiny):
    # Of two classes the top five are always right: the loss decides.
    config = tiny(dataset=f"folder:{birds}", eval_split="test", total_steps=12, report=True)
    config.update({"mixup_p": 0.0, "eval_every_steps": 2, "hand_over": "best"})
    config.early_stopping.metric, config.optimizer.base_lr = "eval_top5", 0.02
    run = birds.parent / "run"
    trainer.train(config, run)
    series = read_metrics(run / "metrics.csv")
    best = min(series["eval_loss"], key=lambda row: row[1])[0]
    accuracies = dict(series["eval_top1"])
    assert accuracies[best] != accuracies[2]
    page = (run / "report.html").read_text()
    assert f"<b>{100 * accuracies[best]:.2f} %</b>top-1 accuracy<" in page


def test_evaluations_before_other_data_was_accepted_are_not_of_the_model():
    # Of equal accuracies the one of less loss.
    series = {
        "eval_top1": [(10, 1.0), (15, 0.2), (20, 0.2), (30, 0.1)],
        "eval_loss": [(10, 0.1), (15, 3.0), (20, 2.0), (30, 3.0)],
        "eval_count": [(10, 20), (15, 20), (20, 20), (30, 20)],
    }
    config = {"data": {"accepted_after": 10}, "hand_over": "best", "total_steps": 30}
    config["early_stopping"] = {"metric": "eval_top1"}
    assert collect_run_results._tiles(series, config) == {
        "top-1 accuracy": "20.00 %",
        "images evaluated": "20",
        "last top-1 accuracy, at step 30": "10.00 %",
        "steps": "30 of 30",
    }


def test_images_of_several_labels_are_left_out(tiny, tmp_path):
    import tensorflow_datasets as tfds

    rng = np.random.default_rng(0)
    rows = [[0], [1], [0, 1], [], [1]]
    classes = tfds.features.Sequence(tfds.features.ClassLabel(names=["crow", "owl"]))
    features = {"image": tfds.features.Image(shape=(16, 16, 3)), "label": classes}
    examples = [
        (key, {"image": rng.integers(0, 255, (16, 16, 3)).astype("uint8"), "label": row})
        for key, row in enumerate(rows)
    ]
    tfds.dataset_builders.store_as_tfds_dataset(
        "several",
        "1.0.0",
        tfds.features.FeaturesDict(features),
        {"train": examples, "test": examples},
        data_dir=tmp_path,
    )
    config = tiny(dataset="tfds:several", data_dir=str(tmp_path), eval_split="test", total_steps=8)
    config.update({"loss": "sigmoid", "mixup_p": 0.0, "batch_size": 2, "report": True})
    trainer.train(config, tmp_path / "run")
    kept = collect_run_results.kept_evaluation(tmp_path / "run" / "evaluation.npz")
    assert sorted(kept["labels"]) == [0, 1, 1]
