import json
from types import SimpleNamespace
from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops
from PIL import Image
from scipy import stats
from sklearn import datasets, metrics

import keras_vit
from keras_vit import export
from keras_vit.__main__ import main
from keras_vit.export.model_card import write_card
from keras_vit.photos.prepare_photos import prepare_photo, read_photo
from keras_vit.training.config import schema
from keras_vit.training.configs import own_photos
from keras_vit.training.data import open_dataset
from keras_vit.training.errors import UsageError
from keras_vit.training.inference.interface import Interface
from keras_vit.training.inference.open_model import open_source
from keras_vit.training.loop import trainer
from keras_vit.training.tasks import TASKS, task_of
from keras_vit.training.tasks.numbers import measures, statistics
from keras_vit.training.tasks.several_labels import best_threshold, sigmoid
from tests.tiny_vit import tiny_vit
from tests.training.runs import column

LABELS, NUMBERS = TASKS[3:]
NAMES = ("zero", "one", "two")


@pytest.fixture(scope="module")
def canvases(tmp_path_factory):
    """Canvases with up to two digits from 0 to 2 side by side, and tables of them."""
    folder, rng = tmp_path_factory.mktemp("canvases"), np.random.default_rng(0)
    digits = datasets.load_digits(n_class=3)
    tables = {"labels": ["path,labels"], "columns": ["path,zero,one,two"], "value": ["path,value"]}
    for number in range(200):
        canvas, found = np.zeros((8, 16), np.uint8), []
        for place in range(2):
            if rng.random() < 0.7:
                one = rng.integers(len(digits.target))
                canvas[:, 8 * place :][:, :8] = np.rint(digits.images[one] * 255 / 16)
                found.append(int(digits.target[one]))
        name = f"{number}.png"
        Image.fromarray(canvas.repeat(2, 0).repeat(2, 1)).save(folder / name)
        tables["labels"].append(f"{name},{';'.join({NAMES[one] for one in found})}")
        cells = ["" if rng.random() < 0.1 else str(int(k in found)) for k in range(3)]
        tables["columns"].append(f"{name},{','.join(cells)}")
        tables["value"].append(f"{name},{2000 + 100 * sum(found)}")
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines))
    return folder


def trained(table, workdir, **changes):
    config = own_photos.get_config(f"{table},size=16,steps=60")
    config.model.update(hidden_size=32, mlp_dim=64, num_heads=2, num_layers=2, patch_size=4)
    config.train_preprocess = config.eval_preprocess
    config.optimizer.base_lr, config.eval_every_steps = 3e-3, 30
    config.update(changes)
    trainer.train(config, workdir)
    return workdir


@pytest.fixture(scope="module")
def labels_run(canvases, tmp_path_factory):
    return trained(canvases / "columns.csv", tmp_path_factory.mktemp("runs") / "labels")


def outputs_of(run):
    source = open_source(run)
    dataset = open_dataset(source.run["dataset"])
    batches = source.batches(dataset.split("train[80%:]"), source.interface.preprocessing, 7)
    return source.task.collected(source, batches, dataset)[:2]


def test_a_folder_of_links_is_the_table(canvases, tmp_path):
    table = open_dataset(f"csv:{canvases}/labels.csv").photos
    for path, row in table.targets.items():
        names = [name for name, cell in zip(table.class_names, row, strict=True) if cell]
        for name in names or ["."]:
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / path).symlink_to(canvases / path)
    both = [
        own_photos.get_config(f"{each},size=16")
        for each in (canvases / "labels.csv", f"labels:{tmp_path}")
    ]
    found = open_dataset(both[1].dataset).photos
    assert found.class_names == table.class_names
    rows = {path.rpartition("/")[2]: row for path, row in found.targets.items()}
    assert rows == table.targets and len(rows) == 200
    sides = [
        {
            photo.path.rpartition("/")[2]
            for photo in open_dataset(each.dataset).split("train[80%:]").photos
        }
        for each in both
    ]
    assert sides[0] == sides[1]
    both[0].dataset = both[1].dataset
    assert both[0] == both[1]
    with pytest.raises(ValueError, match="Expected labels:FOLDER"):
        own_photos.get_config(f"labels:{canvases}/labels.csv")


def test_measures_of_several_labels_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    rows = (rng.random((50, 4)) < [0.1, 0.3, 0.5, 0.9]).astype(float)
    # Rounded, so that some are equal.
    outputs = np.round(rng.normal(size=rows.shape) + rows, 1)
    thresholds = [best_threshold(*each) for each in zip(outputs.T, rows.T, strict=True)]
    interface = Interface((8, 8), activation="sigmoid", thresholds=thresholds)
    found = LABELS.measured(outputs, rows, interface).metrics
    assert found["map"] == pytest.approx(metrics.average_precision_score(rows, outputs))
    answers = sigmoid(outputs) >= thresholds
    for kind in ("micro", "macro"):
        expected = metrics.f1_score(rows, answers, average=kind)
        assert found[f"f1_{kind}"] == pytest.approx(expected)
    assert found["loss"] == pytest.approx(
        4 * metrics.log_loss(rows.ravel(), sigmoid(outputs).ravel())
    )
    for number, threshold in enumerate(thresholds):
        labels, scores = rows[:, number], sigmoid(outputs[:, number])
        best = max(metrics.f1_score(labels, scores >= each) for each in scores)
        assert metrics.f1_score(labels, scores >= threshold) == pytest.approx(best)
        assert abs(scores - threshold).min() > 1e-3
    # Cells that nobody knows count neither way.
    rows[::3, 1] = np.nan
    found = LABELS.measured(outputs, rows, interface)
    known = ~np.isnan(rows[:, 1])
    expected = metrics.average_precision_score(rows[known, 1], outputs[known, 1])
    assert found.tables["per_class"].rows[1][2] == f"{100 * expected:.2f}"
    flat = ~np.isnan(rows)
    expected = metrics.f1_score(rows[flat], answers[flat])
    assert found.metrics["f1_micro"] == pytest.approx(expected)
    # Float32, as files have them, tells no large logits apart.
    scores, labels = np.float32([90, 80, 70, -100, -110]), np.float64([1, 0, 1, 0, 0])
    threshold = best_threshold(scores, labels)
    assert (sigmoid(scores).astype("float32") >= threshold).tolist() == [True] * 3 + [False] * 2
    nobody = np.zeros(5)
    assert best_threshold(nobody, nobody) == 0.5
    rows[:, 2] = 0
    assert LABELS.measured(outputs, rows, interface).tables["per_class"].rows[2][2] == "–"


def test_thresholds_chosen_on_few_images_are_warned_of(caplog):
    rows = np.array([[1, 1]] * 9 + [[1, 0]] * 3, float)
    source = SimpleNamespace(interface=Interface((8, 8), class_names=["a", "b"]), model=mock.Mock())
    with mock.patch.object(type(LABELS), "collected", return_value=(rows, rows, {})):
        LABELS.finish(source, None, [], None)
    assert "Expected 10 held-out images or more of each class" in caplog.text
    assert "1 of 2 classes have fewer" in caplog.text and "10 points: b." in caplog.text


@pytest.mark.rows(("labels", [0.5, 0.5, 0.5]), ("numbers", None))
def test_columns_are_matched_by_name(kind, thresholds):
    names, outputs = ["a", "b", "c"], np.float32([[3, -2, -1], [-3, 4, -5], [-3, -4, 5]])
    interface = Interface((8, 8), class_names=names, thresholds=thresholds)
    function = type("F", (), {"interface": interface, "__call__": lambda self, x: outputs[x]})()
    # The data has the columns c, a, b.
    rows = outputs[:, [2, 0, 1]] if kind == "numbers" else (outputs[:, [2, 0, 1]] > 0) * 1.0
    batch = {"image": np.arange(3), "label": rows, "counted": np.ones(3)}
    dataset = SimpleNamespace(class_names=("c", "a", "b"), name="data")
    task = {"labels": LABELS, "numbers": NUMBERS}[kind]
    found = task.evaluate(function, [{**batch, "known": np.ones((3, 3))}], dataset, "").metrics
    assert found[task.main.name] == 1 and found["count"] == 3


@pytest.mark.parametrize("kind", ["sigmoid", "asymmetric"])
def test_losses_of_several_labels_are_their_equations(kind):
    config = schema.complete(
        {"dataset": "d", "batch_size": 1, "total_steps": 1, "several_labels": {"loss": kind}}
    )
    assert task_of(config) is LABELS
    logits = np.float32([[2.0, -1.0, 0.5], [-4.0, 3.0, 0.0]])
    labels = np.float32([[1, 0, 1], [0, 0, 1]])
    batch = {"image": logits, "label": labels, "known": np.float32([[1, 1, 0], [1, 1, 1]])}
    losses = LABELS.losses(config, None)(lambda x, training: ops.convert_to_tensor(x), batch)
    p = 1 / (1 + np.exp(-logits.astype(float)))
    shifted = np.maximum(p - 0.05, 0)
    absent = -np.log(1 - p) if kind == "sigmoid" else -(shifted**4) * np.log(1 - shifted)
    each = np.where(labels > 0, -np.log(p), absent) * batch["known"]
    np.testing.assert_allclose(ops.convert_to_numpy(losses), each.sum(1), rtol=1e-5)


def test_a_table_of_several_labels_trains_and_chooses_thresholds(labels_run, canvases, capsys):
    assert column(labels_run, "eval_map")[-1] > 0.9
    source, (outputs, rows) = open_source(labels_run), outputs_of(labels_run)
    assert source.interface.classifies == "labels" and source.task is LABELS
    known = [~np.isnan(each) for each in rows.T]
    expected = [
        metrics.average_precision_score(rows[k, i], outputs[k, i]) for i, k in enumerate(known)
    ]
    assert column(labels_run, "eval_map").max() == pytest.approx(np.mean(expected), abs=1e-6)
    thresholds = [best_threshold(outputs[k, i], rows[k, i]) for i, k in enumerate(known)]
    assert source.model.thresholds == pytest.approx(thresholds)
    page = (labels_run / "report.html").read_text()
    assert "AP %" in page and "the answer:" in page and "mAP" in page
    photos = [str(canvases / f"{number}.png") for number in range(40)]
    found = keras_vit.predict(source.model, photos)
    logits = source.model.predict(source_images(source, photos), verbose=0)
    for answer, row in zip(found, logits, strict=True):
        reached = [n for n, p, t in zip(NAMES, sigmoid(row), thresholds, strict=True) if p >= t]
        assert sorted(name for name, _ in answer) == sorted(reached)
    assert [] in found and any(len(answer) > 1 for answer in found)
    page = labels_run / "predictions.html"
    main(["predict", str(labels_run), *photos, "--json", f"--output={page}"])
    assert page.read_text().count("none of these classes") == found.count([])
    printed = json.loads(capsys.readouterr().out)
    assert [[one["class"] for one in each["classes"]] for each in printed] == [
        [name for name, _ in answer] for answer in found
    ]


def source_images(source, photos):
    operations = source.interface.preprocessing
    return np.stack([prepare_photo(read_photo(each, True), operations) for each in photos])


@pytest.mark.long
def test_thresholds_are_in_every_file(labels_run, canvases, tmp_path):
    source = open_source(labels_run)
    photos = [str(canvases / f"{number}.png") for number in range(8)]
    images, truth = (source_images(source, photos) + 1) / 2, np.eye(3, dtype=int)[np.arange(8) % 3]
    for write, name in ((export.to_tflite, "m.tflite"), (export.to_hub, "module")):
        write(source.model, tmp_path / name)
        opened = open_source(tmp_path / name)
        assert opened.task is LABELS and opened.interface.activation == "sigmoid"
        assert opened.interface.thresholds == [*source.model.thresholds]
        answers = [
            task.answers(one, one(each), NAMES, 1)
            for task, one, each in ((LABELS, source, 2 * images - 1), (LABELS, opened, images))
        ]
        assert [each["names"] for each in answers[0]] == [each["names"] for each in answers[1]]
        report = export.verify(source.model, tmp_path / name, images, truth, costs=False)
        assert report.ok, report
    right = 100 * np.mean(truth[range(8), source.model.predict(2 * images - 1).argmax(axis=1)])
    shown = dict(report.rows())
    assert shown["precision at 1 of the model"] == f"{right:.2f} %" and 0 < right < 100
    assert shown["same likeliest class"] == "100.00 %" and "accuracy" not in str(report)
    files = write_card(source.model, report, "me/labels/1", tmp_path, license="apache-2.0")
    card = files[0].read_text()
    assert "Tells which of 3 classes are on" in card and "accuracy" not in card
    source.model.thresholds = (0.5, 0.5, 0.25)
    report = export.verify(source.model, tmp_path / "m.tflite", images, costs=False)
    assert "its thresholds is" in " ".join(report.failures)
    with pytest.raises(ValueError, match="a threshold in \\[0, 1\\] for each of 3 classes"):
        source.model.thresholds = (0.5, 2, 0)
    same = keras.models.model_from_json(source.model.to_json())
    assert same.thresholds == (0.5, 0.5, 0.25)


@pytest.fixture(scope="module")
def numbers_run(canvases, tmp_path_factory):
    return trained(canvases / "value.csv", tmp_path_factory.mktemp("runs") / "numbers")


def test_measures_of_numbers_are_those_of_scikit_learn_and_scipy():
    rng = np.random.default_rng(0)
    # Rounded, so that some are equal.
    rows = np.round(rng.normal(2000, 100, (40, 2)), -1)
    outputs = np.round(rows + rng.normal(0, [30, 300], rows.shape), -1)
    rows[::4, 1] = np.nan
    found = NUMBERS.measured(outputs, rows, Interface((8, 8), activation="linear")).metrics
    expected = []
    for number in range(2):
        known = ~np.isnan(rows[:, number])
        true, answer = rows[known, number], outputs[known, number]
        each = [metrics.r2_score(true, answer), stats.spearmanr(true, answer)[0]]
        each += [metrics.mean_absolute_error(true, answer)]
        expected.append([*each, metrics.mean_squared_error(true, answer) ** 0.5])
    expected = np.mean(expected, axis=0)
    assert [found[each.name] for each in NUMBERS.metrics] == pytest.approx([*expected])
    assert found["loss"] == pytest.approx(1 - expected[0]) and found["count"] == 40
    assert np.isnan(measures(np.ones(3), np.arange(3.0))[1])
    assert np.isnan(measures(np.arange(3.0), np.ones(3))[0])


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_numbers_are_learned_standardized_and_saved_in_their_units(loss, canvases, tmp_path):
    split = open_dataset(f"csv:{canvases}/value.csv").split("train[:80%]")
    values = [split.read(i)["label"].numpy() for i in range(split.num_examples)]
    (mean,), (deviation,) = statistics(split)
    assert (mean, deviation) == pytest.approx((np.mean(values), np.std(values)), rel=1e-5)
    model = tiny_vit(num_classes=1)
    NUMBERS.start(model, split)
    images = np.random.default_rng(0).uniform(-1, 1, (2, *model.input_shape[1:])).astype("float32")
    # A new head gives the mean.
    np.testing.assert_allclose(ops.convert_to_numpy(model(images)), mean, rtol=1e-6)
    head, features = model.get_layer("head"), model.up_to("representation")(images)
    kernel, bias = np.linspace(-1, 1, 16, dtype="float32")[:, None], np.float32([0.5])
    head.set_weights([kernel, bias])
    standardized = ops.convert_to_numpy(features) @ kernel + bias
    expected = standardized * deviation + mean
    np.testing.assert_allclose(ops.convert_to_numpy(model(images)), expected, rtol=1e-5)
    usual = {"dataset": "d", "batch_size": 1, "total_steps": 1, "numbers": {"loss": loss}}
    batch = {"image": images, "label": np.float32([[2100], [0]]), "known": np.float32([[1], [0]])}
    losses = NUMBERS.losses(schema.complete(usual), split)(model, batch)
    error = abs((expected[0, 0] - 2100) / deviation)
    each = error**2 if loss == "mse" else error**2 / 2 if error < 1 else error - 0.5
    np.testing.assert_allclose(ops.convert_to_numpy(losses), [each, 0], rtol=1e-4)
    # What is saved is a plain head, and one that goes on learning gives the same.
    model.activation = "linear"
    model.save(tmp_path / "m.keras")
    saved = keras.saving.load_model(tmp_path / "m.keras")
    assert saved.classifies == "number"
    np.testing.assert_allclose(ops.convert_to_numpy(saved(images)), expected, rtol=1e-5)
    NUMBERS.start(saved, split)
    np.testing.assert_allclose(saved.get_layer("head").get_weights()[0], kernel, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(saved(images)), expected, rtol=1e-5)


def test_the_sum_of_digits_is_learned(numbers_run, canvases, tmp_path, capsys):
    source, (outputs, rows) = open_source(numbers_run), outputs_of(numbers_run)
    assert source.task is NUMBERS and source.interface.classifies == "number"
    assert column(numbers_run, "eval_r2").max() == pytest.approx(
        metrics.r2_score(rows, outputs), abs=1e-4
    )
    assert metrics.r2_score(rows, outputs) > 0.5 and abs(outputs.mean() - rows.mean()) < 50
    assert "Predicted against true" in (numbers_run / "report.html").read_text()
    photos = [str(canvases / f"{number}.png") for number in range(3)]
    expected = source.model.predict(source_images(source, photos), verbose=0)[:, 0]
    found = keras_vit.predict(source.model, photos)
    assert [[name for name, _ in each] for each in found] == [["value"]] * 3
    assert [each[0][1] for each in found] == pytest.approx([*expected], rel=1e-4)
    page = tmp_path / "page.html"
    main(["predict", str(numbers_run), *photos, "--json", f"--output={page}"])
    printed = [each["numbers"][0] for each in json.loads(capsys.readouterr().out)]
    assert [each["value"] for each in printed] == pytest.approx([*expected], rel=1e-4)
    assert f"<td>{printed[0]['value']:.5g}</td>" in page.read_text()
    main(["predict", str(numbers_run), *photos[:1], "--csv"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["file,name,value", f"{photos[0]},value,{printed[0]['value']:.4f}"]


@pytest.mark.long
def test_numbers_are_in_every_file(numbers_run, canvases, tmp_path):
    source = open_source(numbers_run)
    images = (source_images(source, [canvases / f"{number}.png" for number in range(3)]) + 1) / 2
    expected = source.model.predict(2 * images - 1, verbose=0)[:, 0]
    for write, name in ((export.to_tflite, "m.tflite"), (export.to_hub, "module")):
        write(source.model, tmp_path / name)
        opened = open_source(tmp_path / name)
        assert opened.task is NUMBERS and opened.interface.class_names == ["value"]
        assert opened(images)[:, 0] == pytest.approx(expected, rel=1e-3)
        report = export.verify(source.model, tmp_path / name, images, costs=False)
        assert report.ok and report.agreement is None, report
    signature = opened.module.signatures["serving_default"]
    assert {*signature.structured_outputs} == {"logits", "values"}
    values = signature(images=ops.convert_to_tensor(images, "float32"))["values"]
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-3)


def test_heads_and_tables_of_another_kind_do_not_meet(numbers_run, canvases, tmp_path, refused):
    folder = canvases / "kinds"
    folder.mkdir()
    for name, header, cells in (
        ("class", "path,label", ("value", "other")),
        ("zeros", "path,value,other", ("0,1", "1,0")),
        ("numbers", "path,value", ("3", "4")),
        ("same", "path,split,value", ("train,3", "train,4")),
        ("odd", "path,value", ("1_000", "4")),
    ):
        rows = [f"../{number}.png,{cells[number % 2]}" for number in range(20)]
        rows += ["../20.png,test,3", "../21.png,test,3"] if name == "same" else []
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]))
    more = "--split=train"
    said = refused("evaluate", numbers_run, f"--dataset=csv:{folder}/class.csv", more)
    assert "Expected data of numbers for" in said and "of label for each photo" in said
    classifier = tiny_vit(num_classes=1)
    classifier.class_names = ["value"]
    classifier.save(tmp_path / "classes.keras")
    said = refused(
        "evaluate", tmp_path / "classes.keras", f"--dataset=csv:{folder}/numbers.csv", more
    )
    assert "Expected data of classes for" in said and "of numbers for each photo" in said
    config = own_photos.get_config(f"{folder}/numbers.csv,model={tmp_path}/classes.keras,steps=2")
    config.checkpoint_head = "keep"
    with pytest.raises(UsageError, match=r"gives logits of classes\. Received: keep"):
        trainer.train(config, tmp_path / "kept")
    with pytest.raises(UsageError, match="expected photos of different numbers, of which R²"):
        trained(folder / "same.csv", tmp_path / "same")
    with pytest.raises(UsageError, match="Expected a finite number"):
        open_dataset(f"csv:{folder}/odd.csv")


def test_numbers_that_a_run_learned_are_not_exchanged(numbers_run, canvases):
    table = canvases / "value.csv"
    header, *rows = (content := table.read_text()).splitlines()
    table.write_text("\n".join([header, *(row + "0" for row in rows)]))
    try:
        with pytest.raises(UsageError, match="by whose mean and deviation it learns"):
            trained(table, numbers_run, data_changed="accept")
    finally:
        table.write_text(content)


def test_tasks_and_tables_that_do_not_fit_are_refused(canvases, tmp_path):
    model = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "mlp_dim": 16}
    model |= {"num_layers": 1, "num_heads": 2}
    usual = {"batch_size": 8, "total_steps": 3, "model": model}
    usual |= {"train_preprocess": "decode|resize(16)|value_range(-1,1)"}
    table = {"dataset": f"csv:{canvases}/labels.csv", **usual}
    with pytest.raises(UsageError, match=r"config\.several_labels\.loss: expected a loss, as csv:"):
        trainer.train(table, tmp_path / "run")
    with pytest.raises(UsageError, match=r"config\.numbers\.loss: expected csv:TABLE with a col"):
        trainer.train({**table, "numbers": {"loss": "mse"}}, tmp_path / "run")
    with pytest.raises(UsageError, match=r"config\.numbers\.loss: expected a loss, as csv:"):
        trainer.train({**table, "dataset": f"csv:{canvases}/value.csv"}, tmp_path / "run")
    digits = {"dataset": f"csv:{canvases}/labels.csv", **usual, "mixup_p": 0.1}
    with pytest.raises(UsageError, match="expected 0, as cells of a table may be empty"):
        trainer.train(digits | {"several_labels": {"loss": "sigmoid"}}, tmp_path / "run")
