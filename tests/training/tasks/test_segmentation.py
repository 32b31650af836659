import base64
import io
import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from PIL import Image

import keras_vit
from keras_vit.training.config import overrides, schema
from keras_vit.training.data import open_dataset
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from keras_vit.training.data.sets import known_datasets
from keras_vit.training.data.sets.photo_sets import read_mask
from keras_vit.training.data.sets.vtab_labels import rule
from keras_vit.training.data.tf_data_batches import eval_dataset
from keras_vit.training.engine.update import Batch
from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators.windows import window_probabilities, window_starts
from keras_vit.training.inference.image_function import compiled_function
from keras_vit.training.inference.open_model import open_source
from keras_vit.training.loop import trainer
from keras_vit.training.tasks import TASKS, task_of
from keras_vit.training.tasks.segmentation import dice_losses, palette, write_mask
from tests.conftest import GOLDEN
from tests.golden import golden
from tests.keras_vit.models.test_segmenter import build, load
from tests.training.runs import assert_same, rows

CASES = json.loads((GOLDEN / "segmenter.json").read_text())
TASK = TASKS[2]


def sums_of(predictions, labels, classes, counted=None):
    """Returns the sums of a model whose best class at every pixel is the prediction's."""
    logits = 20 * np.eye(classes, dtype="float32")[predictions]
    counted = np.ones(len(labels), "float32") if counted is None else counted
    batch: Batch = {"image": logits, "label": labels, "counted": counted}
    found = TASK.batch_sums("softmax")(lambda x, training: ops.convert_to_tensor(x), batch)
    return ops.convert_to_numpy(found).astype(np.float64)


def test_mean_iou_is_that_of_three_libraries_over_the_whole_set():
    case = CASES["miou"]
    classes, total = case["num_classes"], 0
    for truth, prediction in zip(case["truth"], case["prediction"], strict=True):
        truth, prediction = np.array([truth, truth]), np.array([prediction, prediction])
        truth = np.where(truth == case["ignore"], -1, truth).astype("int32")
        # Padded by an image that does not count.
        total = total + sums_of(prediction, truth, classes, np.float32([1, 0]))
    found = TASK.means(total)
    expected = case["mmseg_0.14.1"]
    assert found["miou"] == pytest.approx(case["torchmetrics_1.9.0"]["jaccard_macro"], abs=1e-6)
    assert found["pixels"] == pytest.approx(expected["pixel_accuracy"], abs=1e-6)
    assert found["count"] == 2
    assert found["miou"] != pytest.approx(case["per_image_mean_of_nanmean"], abs=1e-3)


def test_windows_scales_and_flips_are_those_of_the_original(tmp_path):
    case = CASES["sliding_window"]
    model = load(build(case), case, tmp_path / "model.safetensors")
    image = golden.image((1, *case["image_size"], 3), case["seed"])[0]
    window, stride = case["window_size"], case["window_stride"]
    anchors = [
        [top, left]
        for top in window_starts(image.shape[0], window, stride)
        for left in window_starts(image.shape[1], window, stride)
    ]
    assert anchors == case["anchors"]
    scales = list(dict.fromkeys(tuple(each["size"]) for each in case["scales"]))
    function = compiled_function(model)

    for name, more in {"single": {}, "multi": {"scales": scales, "flip": True}}.items():
        found = window_probabilities(function, image, window, stride, **more)
        np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)
        found = found[case["rows"]][:, case["columns"]]
        expected = np.array(case["probabilities"][name])
        assert np.abs(found - expected).max() < 2e-5 * expected.std()
    with pytest.raises(ValueError, match="Expected a stride from 1 to the window, 32"):
        window_probabilities(function, image, window, 33)


def test_loss_is_the_mean_over_the_labeled_pixels_of_the_batch():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 3, 4, 5)).astype("float32")
    labels = rng.integers(-1, 5, (2, 3, 4)).astype("int32")
    labels[0] = -1  # an image without any
    losses = TASK.losses(schema.default_config(), None)(
        lambda x, training: ops.convert_to_tensor(x), {"image": logits, "label": labels}
    )
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    known = labels >= 0
    expected = -np.take_along_axis(logs, labels.clip(0)[..., None], -1)[..., 0][known].mean()
    assert float(ops.mean(losses)) == pytest.approx(expected, rel=1e-6)
    assert ops.convert_to_numpy(losses)[0] == 0
    none = TASK.losses(schema.default_config(), None)(
        lambda x, training: ops.convert_to_tensor(x), {"image": logits, "label": labels * 0 - 1}
    )
    assert not ops.convert_to_numpy(none).any()


def test_dice_is_over_the_classes_of_an_image():
    # Of class 0 half of the probability lies on its two pixels, of class 1 all on its one.
    logits = np.log(np.float32([[[[0.5, 0.5, 1e-9], [0.5, 0.5, 1e-9], [1e-9, 1, 1e-9]]]]))
    logits = np.repeat(logits, 3, axis=0)
    labels = np.int32([[[0, 0, 1]], [[0, -1, 1]], [[-1, -1, -1]]])
    found = ops.convert_to_numpy(dice_losses(logits, labels))
    whole = 1 - (2 * 1.0 / (1 + 2) + 2 * 1 / (2 + 1)) / 2
    without = 1 - (2 * 0.5 / (0.5 + 1) + 2 * 1 / (1.5 + 1)) / 2
    np.testing.assert_allclose(found, [whole, without, 0], atol=1e-6)
    config = schema.default_config()
    batch = {"image": logits, "label": labels}
    values = []
    for weight in (0.0, 0.5):
        config.masks.dice = weight
        losses = TASK.losses(config, None)(lambda x, training: x, batch)
        values.append(ops.convert_to_numpy(losses))
    np.testing.assert_allclose(values[1] - values[0], found / 2, atol=1e-6)
    usual = {"dataset": "digits", "batch_size": 8, "total_steps": 3, "masks": {"dice": 0.5}}
    with pytest.raises(UsageError, match=r"config\.masks\.decoder beside it"):
        schema.complete(usual)


TEXTS = (
    "resize(24)|random_crop(16)|flip_lr|random_shift(3)|value_range(-1,1)",
    "resize_between(12, 48)|varied_crop(16)|flip_lr|value_range(-1,1)|pad_to(16)",
)


@pytest.mark.parametrize("text", TEXTS)
def test_image_and_mask_move_together(text):
    mask = np.kron(np.random.default_rng(0).integers(0, 5, (6, 6)), np.ones((6, 6), int))
    image = np.repeat(mask[..., None] * 40 + 20, 3, -1).astype("uint8")
    process = Preprocess(text)
    for seed in range(8):
        example = {"image": tf.constant(image), "label": tf.constant(mask[..., None])}
        found = process.example(example, tf.constant([3, seed], tf.int64))
        encoded = TASK.encode(found, 5)
        assert encoded["label"].dtype == tf.int32 and encoded["label"].shape == (16, 16)
        values = ((found["image"].numpy()[..., 0] + 1) * 127.5 - 20) / 40
        label = encoded["label"].numpy()
        # Bilinear pixels between two squares have no class of their own.
        inside = np.abs(values - np.round(values)) < 1e-3
        outside = label < 0
        padding = 2.6875 if "pad_to" in text else -0.5  # 0 after `value_range`, or before
        assert np.abs(values[outside] - padding).max(initial=0) < 1e-3 and inside.mean() > 0.2
        np.testing.assert_array_equal(np.round(values)[inside & ~outside], label[inside & ~outside])
    stored = tf.constant(np.uint8([[[255], [1]]]))
    encoded = TASK.encode({"image": tf.constant(image), "label": stored}, 5)
    assert encoded["label"].numpy().tolist() == [[-1, 1]]


def test_arguments_of_the_task_are_checked():
    usual = {"dataset": "digits_masks", "batch_size": 8, "total_steps": 3}
    config = schema.complete({**usual, "masks": {"decoder": "mask"}})
    assert task_of(config) is TASK
    for changes in ({"label_smoothing": 0.1}, {"loss": "sigmoid"}):
        with pytest.raises(UsageError, match="no loss, label_smoothing"):
            schema.complete({**usual, **changes, "masks": {"decoder": "mask"}})


def write_masks(folder, mode="L", sizes=((20, 30), (24, 18), (20, 30)), **labels):
    """Writes photos whose left part is of class 0, the rest of class 2, and a row of none."""
    for number, (height, width) in enumerate(sizes):
        mask = np.full((height, width), 2, "uint8")
        mask[:, : width // 2] = 0
        mask[0] = 255
        image = np.repeat((mask % 255)[..., None] * 100, 3, -1).astype("uint8")
        for part, pixels in (("images", Image.fromarray(image)), ("masks", Image.fromarray(mask))):
            (folder / part).mkdir(parents=True, exist_ok=True)
            if part == "masks" and mode == "P":
                pixels.putpalette([255, 0, 0, 0, 255, 0] * 128)
            pixels.save(folder / part / f"{number}.png")
    if labels:
        (folder / "labels.json").write_text(json.dumps(labels["names"]))
    return folder


@pytest.mark.parametrize("mode", ["L", "P"])
def test_masks_of_a_folder_are_read_as_numbers(mode, tmp_path):
    root = write_masks(tmp_path, mode, names=["road", "tree", "sky"])
    dataset = open_dataset(f"masks:{root}")
    assert (dataset.num_classes, dataset.class_names) == (3, ("road", "tree", "sky"))
    split = dataset.split("train")
    assert split.num_examples == 3
    process = split.preprocess("decode|resize(16)|value_range(-1,1)")
    (batch,) = eval_dataset(split, process, batch_size=3, task=TASK).as_numpy_iterator()
    assert batch["label"].shape == (3, 16, 16) and {*np.unique(batch["label"])} == {-1, 0, 2}
    black = batch["image"][..., 0] < -0.99
    inside = batch["label"] >= 0
    agree = (batch["label"] == 0) == black
    assert agree[inside].mean() > 0.9
    before = split.fingerprint
    assert before["examples"] == 3
    write_masks(root, mode, sizes=((20, 30), (24, 18), (20, 30)))
    mask = np.zeros((20, 30), "uint8")
    Image.fromarray(mask).save(root / "masks" / "2.png")
    after = open_dataset(f"masks:{root}").split("train").fingerprint
    assert after["digest"] != before["digest"]
    (root / "labels.json").unlink()
    assert open_dataset(f"masks:{root}").class_names == ("0", "1", "2")


def test_data_check_shows_the_share_of_each_class(printed, refused, tmp_path):
    root = write_masks(tmp_path, sizes=((11, 20),), names=["road", "tree", "sky"])
    page = tmp_path / "page.html"
    found = printed("data", "check", f"masks:{root}", f"--output={page}")
    shown = page.read_text()
    assert "1 photos by masks:" in shown and "Masks" in shown and 'alt="image of 0.png"' in shown
    # Of all pixels: a row has no class.
    shares = dict(re.findall(r'title="(road|sky|tree)".*?<td>([\d.]+) %', shown))
    assert {name: round(float(each)) for name, each in shares.items()} == {"road": 45, "sky": 46}
    photo = re.search('src="data:image/png;base64,([^"]+)"', shown)[1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(photo))))
    assert pixels[-1, 0].tolist() == [0, 0, 0] and pixels[-1, -1].tolist() == [100, 164, 100]
    assert "with a data set of masks" in refused("data", "check", "digits", f"--output={page}")
    # Of ten rows and twenty columns of pixels with a class, the left half is road.
    assert re.search(r"road +│ +50\.00 ", found) and re.search(r"tree +│ +0\.00 ", found)
    assert "3 classes, 2 of them among the images decoded" in found and "all well" in found
    (root / "images" / "0.png").write_bytes(b"no image")
    found = printed("data", "check", f"masks:{root}", status=1)
    assert "problem: train images/0.png: images/0.png cannot be read as an image" in found


def test_objects_of_coco_become_masks(printed, refused, tmp_path):
    (tmp_path / "images").mkdir()
    for name, size in (("a.png", (30, 20)), ("b.png", (8, 6))):
        Image.new("RGB", size).save(tmp_path / "images" / name)
    large = {"segmentation": [[2, 2, 20, 2, 20, 12, 2, 12]], "area": 180, "category_id": 9}
    small = {"segmentation": [[4, 4, 8, 4, 8, 8, 4, 8]], "area": 16, "category_id": 3}
    runs = {"segmentation": {"size": [6, 8], "counts": [6, 12, 30]}, "area": 12, "category_id": 3}
    objects = [{"image_id": 1, **small}, {"image_id": 1, **large}, {"image_id": 2, **runs}]
    sizes = {"a.png": (20, 30), "b.png": (6, 8)}
    content = {
        "images": [
            {"id": number, "file_name": name, "height": height, "width": width}
            for number, (name, (height, width)) in enumerate(sizes.items(), 1)
        ],
        "annotations": [{"id": n, "iscrowd": 0, **each} for n, each in enumerate(objects)],
        "categories": [{"id": 9, "name": "tree"}, {"id": 3, "name": "bird"}],
    }
    file = tmp_path / "annotations.json"
    file.write_text(json.dumps(content))
    assert "Wrote 2 masks of background, bird, tree" in printed("data", "draw", tmp_path)
    expected = np.zeros((20, 30), int)
    expected[2:12, 2:20], expected[4:8, 4:8] = 2, 1
    np.testing.assert_array_equal(Image.open(tmp_path / "masks" / "a.png"), expected)
    columns = np.repeat([[0, 1, 1, 0, 0, 0, 0, 0]], 6, axis=0)
    np.testing.assert_array_equal(Image.open(tmp_path / "masks" / "b.png"), columns)
    assert open_dataset(f"masks:{tmp_path}").class_names == ("background", "bird", "tree")
    assert "without masks/" in refused("data", "draw", tmp_path)
    os.rename(tmp_path / "masks", tmp_path / "old")
    for damage, said in (
        ({"categories": []}, "1 to 254 categories"),
        ({"annotations": [{**content["annotations"][0], "category_id": 5}]}, "known category"),
        ({"images": [{**content["images"][0], "width": 31}]}, "photo of 20 x 31"),
    ):
        file.write_text(json.dumps(content | damage))
        assert said in refused("data", "draw", tmp_path)
        assert not (tmp_path / "masks").exists()


def test_folders_of_masks_are_checked(tmp_path):
    def refused(message):
        with pytest.raises((UsageError, ValueError, tf.errors.OpError), match=message):
            dataset = open_dataset(f"masks:{root}")
            split = dataset.split("train")
            process = split.preprocess("decode|resize(16)|value_range(-1,1)")
            list(eval_dataset(split, process, batch_size=3, task=TASK))

    root = tmp_path / "none"
    refused("has no images/")
    root = write_masks(tmp_path / "a", names=["road", "tree", "sky"])
    (root / "labels.json").write_text('{"0": "road", "2": "sky"}')
    refused("a number is missing")
    (root / "labels.json").write_text('["road", "tree"]')
    refused("Expected labels below 2")
    (root / "labels.json").unlink()
    Image.new("RGB", (30, 20)).save(root / "masks" / "2.png")
    refused("Save colors as numbers")
    (root / "labels.json").write_text('["road", "tree", "sky"]')
    Image.new("L", (20, 30)).save(root / "masks" / "2.png")
    refused(
        "Expected a mask of 20 x 30, the size of images/2.png. Received: masks/2.png of 30 x 20"
    )
    (root / "masks" / "2.png").unlink()
    refused("images/2.png without masks/2.png")


def test_pets_masks_begin_with_zero():
    found = rule("pet_mask").classify({"segmentation_mask": tf.constant([[[1]], [[2]], [[3]]])})
    assert found.numpy().ravel().tolist() == [0, 1, 2]
    row = known_datasets.row("oxford_iiit_pet_masks")
    assert row.class_names == ("pet", "background", "border") and row.builder == "oxford_iiit_pet"


@pytest.fixture(scope="module")
def canvases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("canvases")
    dataset = open_dataset("digits_masks", folder)

    def config(**changes):
        result = overrides.load_config("digits_masks")
        result.model.update(hidden_size=16, mlp_dim=32, num_heads=2, num_layers=1)
        result.update(data_dir=str(folder), total_steps=6, eval_every_steps=3, steps_per_call=1)
        result.optimizer.warmup_steps = 0
        result.train_split, result.eval_split = "train[:24]", "test[:30]"
        result.update(batch_size=8, eval_batch_size=16, checkpoint_every_steps=3, **changes)
        return result

    return dataset, config


def test_canvases_have_a_digit_and_its_strokes(canvases):
    dataset, _ = canvases
    assert {name: dataset.split(name).num_examples for name in ("train", "test")} == {
        "train": 2884,
        "test": 180,
    }
    example = dataset.split("test").read(tf.constant(0, tf.int64))
    image, mask = tf.io.decode_png(example["image"]).numpy(), example["label"].numpy()
    np.testing.assert_array_equal(mask > 0, image >= 64)
    assert mask.shape == (36, 36, 1) and len(np.unique(mask)) == 2


@pytest.fixture(scope="module")
def run(canvases, tmp_path_factory):
    config = canvases[1](log_every_steps=1, report=True)
    config.masks.decoder = "mask"  # whose dropout draws
    folder = tmp_path_factory.mktemp("run") / "run"
    return config, folder, trainer.train(config, folder)


def test_a_run_resumes_bit_for_bit_and_is_evaluated_as_it_was(canvases, run, tmp_path):
    dataset, _ = canvases
    config, whole, metrics = run
    resumed = shutil.copytree(whole, tmp_path / "resumed")
    # As if it was killed after its step 3 of 6.
    shutil.rmtree(resumed / "checkpoints/checkpoint-6")
    (resumed / "model.keras").unlink()
    trainer.train(config, resumed)
    assert_same(whole, resumed)
    assert rows(whole) == rows(resumed)
    source = open_source(whole)
    assert isinstance(source.model, keras_vit.Segmenter) and source.interface.output == "logits"
    assert source.model.class_names == dataset.class_names
    split = dataset.split(config.eval_split)
    batches = list(source.batches(split, config.eval_preprocess, 7))
    found = source.task.evaluate(source, batches, dataset, "softmax")
    # The counts are exact; the last batch has rows that do not count.
    assert found.metrics["count"] == 30 and found.metrics["miou"] == metrics["eval_miou"]
    assert found.metrics["pixels"] == metrics["eval_pixels"]
    assert found.metrics["loss"] == pytest.approx(metrics["eval_loss"], rel=1e-5)
    assert [row[0] for row in found.tables["per_class"].rows] == list(dataset.class_names)


def test_the_page_shows_classes_and_the_worst_images(run):
    page = (run[1] / "report.html").read_text()
    assert "Tables and examples: 30 images of test[:30]" in page and "IoU %" in page
    assert "<h1>run: digits_masks</h1>" in page
    rows = re.findall(r'<tr><th scope="row" title="([^"]+)">.*?<td>([\d.]+)</td>', page)
    assert [name for name, _ in rows] == ["background", *"01234"]
    assert sum(float(share) for _, share in rows) == pytest.approx(100, abs=0.1)
    shares = [float(each) for each in re.findall(r"<figcaption>([\d.]+) % of the pixels", page)]
    assert len(shares) == 12 and shares == sorted(shares, reverse=True)


def test_data_and_task_must_fit(canvases, tmp_path, tiny):
    _, config_of = canvases
    config = config_of()
    config.masks.decoder = ""
    with pytest.raises((UsageError, ValueError), match=r"Set config\.masks\.decoder to mask"):
        trainer.train(config, tmp_path / "run")
    config = tiny(mixup_p=0.0)
    config.masks.decoder = "mask"
    with pytest.raises((UsageError, ValueError), match="expected a data set of images with maps"):
        trainer.train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_predictions_are_areas_masks_and_overlays(tmp_path):
    mask = np.array([[0, 2, 2], [2, 2, 1]])
    (answer,) = TASK.answers(None, np.eye(3)[mask][None], ["road", "tree", "sky"], 2)
    assert TASK.ranked(answer) == [("sky", 4 / 6), ("road", 1 / 6)]
    np.testing.assert_array_equal(answer["mask"], mask)
    overlay = TASK.picture(np.full((2, 3, 3), 100, "uint8"), answer)
    assert overlay[0, 1].tolist() == [50, 114, 50] and palette()[3] == (128, 128, 0)
    assert overlay[0, 0].tolist() == [50, 50, 50]
    with pytest.raises(ValueError, match="Expected a name for each of 3 classes"):
        TASK.answers(None, np.eye(3)[mask][None], ["road"], 2)
    photo = Image.new("RGB", (4, 6))
    exif = photo.getexif()
    exif[0x0112] = 6  # turned by a quarter: 6 wide and 4 high
    photo.save(tmp_path / "photo.jpg", exif=exif)
    write_mask(tmp_path / "out" / "photo.png", answer["mask"], str(tmp_path / "photo.jpg"))
    written = read_mask((tmp_path / "out" / "photo.png").read_bytes(), "photo.png")[..., 0]
    np.testing.assert_array_equal(written, mask.repeat(2, axis=0).repeat(2, axis=1))
    with pytest.raises(ValueError, match="Expected classes up to 255"):
        write_mask(tmp_path / "b.png", mask + 254, str(tmp_path / "photo.jpg"))


@pytest.mark.long
def test_own_photos_with_masks_train_a_segmenter(tmp_path, printed):
    root = write_masks(tmp_path / "roads", sizes=((20, 30),) * 8, names=["road", "tree", "sky"])
    config = overrides.load_config(f"own_photos:{root},size=24,steps=2")
    config.model.update(hidden_size=16, mlp_dim=32, num_heads=2, num_layers=1)
    config.update(batch_size=4, eval_every_steps=2, report=False)
    config.early_stopping.patience = 0
    metrics = trainer.train(config, tmp_path / "run")
    assert 0 <= metrics["eval_miou"] <= 1 and metrics["eval_count"] == 2
    source = open_source(tmp_path / "run")
    assert source.interface.class_names == ["road", "tree", "sky"]
    assert source.model.output_shape == (None, 24, 24, 3)
    model, photo = tmp_path / "run" / "model.keras", root / "images" / "0.png"
    assert open_source(model).task is TASK
    found = json.loads(printed("predict", model, photo, f"--masks={tmp_path / 'out'}", "--json"))
    mask = read_mask((tmp_path / "out" / "0.png").read_bytes(), "0.png")
    assert mask.shape == (20, 30, 1)
    shares = {each["class"]: each["area"] for each in found[0]["areas"]}
    assert sum(shares.values()) == pytest.approx(1)
    assert {["road", "tree", "sky"][value] for value in np.unique(mask)} <= {*shares}
