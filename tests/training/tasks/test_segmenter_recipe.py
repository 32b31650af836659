import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit.__main__ import main
from keras_vit.learning_rate_schedule import WarmupDecay
from keras_vit.optimizers import Momentum
from keras_vit.training.config import overrides, schema
from keras_vit.training.data import open_dataset
from keras_vit.training.data.preprocessing.geometry import size_between
from keras_vit.training.data.preprocessing.pixel_values import distorted
from keras_vit.training.data.preprocessing.preprocess import Preprocess
from keras_vit.training.data.sets import known_datasets
from keras_vit.training.data.sets.vtab_labels import rule
from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators.windows import evaluate_by_windows, window_probabilities
from keras_vit.training.inference.image_function import compiled_function
from keras_vit.training.inference.interface import Interface
from keras_vit.training.loop import trainer
from keras_vit.training.tasks.segmentation import mean_iou
from tests.training.tasks.test_segmentation import write_masks


def test_images_are_resized_between_two_sides():
    assert size_between((683, 512, 3), 512, 2048).numpy().tolist() == [683, 512]
    assert size_between((100, 500), 50, 200).numpy().tolist() == [40, 200]  # the long side limits
    assert size_between((375, 500, 3), 520, 4160).numpy().tolist() == [520, 693]
    process = Preprocess("resize_between(40, 160, 0.5, 2)")
    image = tf.zeros((30, 60, 3), tf.uint8)
    heights = {process(image, tf.constant([0, seed])).shape[0] for seed in range(40)}
    assert min(heights) in range(20, 26) and max(heights) in range(74, 81) and len(heights) > 15
    with pytest.raises((ValueError, tf.errors.OpError), match="needs an image at most that large"):
        Preprocess("pad_to(20)")(image, tf.constant([0, 0]))
    with pytest.raises(ValueError, match="0 < short <= long"):
        Preprocess("resize_between(40, 30)")


def test_crops_are_drawn_again_while_one_class_covers_them():
    mask = np.zeros((40, 40, 1), "int32")
    mask[:, 30:] = 1  # most crops of 10 see one class
    mask[20:, :10] = 255
    image = tf.constant(np.repeat(mask * 50, 3, -1).astype("uint8"))
    process = Preprocess("varied_crop(10)")
    draws, mixed = 60, {True: 0, False: 0}
    for text, is_limited in (("varied_crop(10)", True), ("varied_crop(10, limit=2)", False)):
        process = Preprocess(text)
        for seed in range(draws):
            example = {"image": image, "label": tf.constant(mask)}
            found = process.example(example, tf.constant([1, seed]))
            label = found["label"].numpy()
            np.testing.assert_array_equal(found["image"].numpy()[..., :1], label * 50 % 256)
            shares = np.bincount(label[label < 255].ravel(), minlength=2) / max(
                (label < 255).sum(), 1
            )
            mixed[is_limited] += shares.max() < 0.75 and np.count_nonzero(shares) == 2
    # One place in six shows enough of both, and eleven draws miss all of these in one of seven.
    assert mixed[True] > 0.7 * draws > 0.6 * draws > mixed[False]
    small = process.example(
        {"image": image[:6], "label": tf.constant(mask[:6])}, tf.constant([0, 0])
    )
    assert small["label"].shape == (6, 10, 1)
    assert process(image, tf.constant([0, 0])).shape == (10, 10, 3)  # without a map


@pytest.mark.parametrize(
    ("coins", "draws", "expected"),
    [
        ((0, 0, 0, 0, 0), (1, 1, 1, 1), [255, 0, 0]),
        ((1, 0, 0, 0, 0), (-0.5, 0, 0, 0), [239, 0, 0]),
        ((1, 1, 0, 0, 1), (0.75, -1, 0, 0), [127, 12, 12]),  # 24 more, halved and rounded down
        ((0, 0, 1, 0, 0), (0, 0, -1, 0), [255, 128, 128]),  # a saturation of 127
        ((0, 0, 0, 1, 0), (0, 0, 0, 0.999), [255, 144, 0]),
        ((0, 0, 0, 1, 0), (0, 0, 0, -1), [255, 0, 153]),  # 36 degrees back
        ((0, 1, 1, 0, 0), (0, -1, -1, 0), [127, 64, 64]),
    ],
)
def test_colors_change_as_opencv_counts_them(coins, draws, expected):
    red = tf.constant([[[255, 0, 0]]], tf.uint8)
    found = distorted(red, np.array(coins, bool), np.float32(draws))
    assert found.dtype == tf.uint8 and np.abs(found[0, 0].numpy().astype(int) - expected).max() <= 1
    gray = tf.constant([[[90, 90, 90]]], tf.uint8)
    changed = distorted(gray, np.array([0, 0, 1, 1, 0], bool), np.float32([0, 0, 0.5, 0.5]))
    np.testing.assert_array_equal(changed, gray)


def test_rates_decay_by_a_power_and_momentum_looks_ahead():
    schedule = WarmupDecay(1e-3, 1000, decay="poly", end_lr=1e-5)
    expected = [(1e-3 - 1e-5) * (1 - step / 1000) ** 0.9 + 1e-5 for step in (0, 400, 999, 1000)]
    found = [float(schedule(step)) for step in (0, 400, 999, 1000)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    ours = Momentum(0.1, momentum=0.9, nesterov=True)
    theirs = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    values = []
    for optimizer in (ours, theirs):
        kernel = keras.Variable([1.0, -2.0], name="kernel")
        for gradient in ([1.0, 0.5], [-0.5, 2.0], [0.25, 0.0]):
            optimizer.apply([keras.ops.array(gradient)], [kernel])
        values.append(kernel.numpy())
    np.testing.assert_allclose(*values, rtol=1e-6)
    assert Momentum.from_config(ours.get_config()).nesterov


def test_recipes_are_the_published_ones():
    ade = schema.complete(overrides.load_config("segmenter:augreg/S_16,ade20k:/data/ADE"))
    assert (ade.checkpoint, ade.model.image_size, ade.masks.decoder) == ("augreg/S_16", 512, "mask")
    assert (ade.train_split, ade.eval_split, ade.epochs) == ("training", "validation", 64)
    optimizer = ade.optimizer
    assert (optimizer.name, optimizer.nesterov, optimizer.weight_decay) == ("sgd", True, 0)
    assert (optimizer.base_lr, optimizer.end_lr, optimizer.schedule) == (1e-3, 1e-5, "poly")
    city = overrides.load_config("segmenter:ViT-B/16,cityscapes,decoder=linear")
    assert (city.model.image_size, city.batch_size, city.optimizer.base_lr) == (768, 8, 1e-2)
    assert "resize_between(1024, 2048, 0.5, 2)|varied_crop(768)" in city.train_preprocess
    modern = overrides.load_config("segmenter:ViT-B/16,pets_masks,modern=true,recipe=ade20k")
    assert (modern.optimizer.name, modern.optimizer.layer_decay) == ("adamw", 0.75)


def write_ade20k(root):
    """Writes two photos of each split, whose left is of no class and whose right is a tree."""
    for split in ("training", "validation"):
        for part in ("images", "annotations"):
            (root / part / split).mkdir(parents=True)
        for name in "ab":
            mask = np.zeros((20, 30), "uint8")
            mask[:, 15:] = 5
            photo = Image.fromarray(np.repeat(mask[..., None] * 20, 3, -1))
            photo.save(root / "images" / split / f"{name}.jpg")
            Image.fromarray(mask).save(root / "annotations" / split / f"{name}.png")
    names = [f"{n + 1}\t0.1\t1\t1\tthing {n + 1}, object" for n in range(150)]
    (root / "objectInfo150.txt").write_text("\n".join(["Idx\tRatio\tTrain\tVal\tName", *names]))
    return root


def test_ade20k_is_read_from_its_folders(tmp_path):
    root = write_ade20k(tmp_path)
    dataset = open_dataset(f"ade20k:{root}")
    assert dataset.num_classes == 150 and dataset.class_names[4] == "thing 5, object"
    split = dataset.split("validation")
    assert split.num_examples == 2 and dataset.split("training").num_examples == 2
    label = split.read(tf.constant(0, tf.int64))["label"].numpy()
    assert label.shape == (20, 30, 1) and (label[:, :15] == -1).all() and (label[:, 15:] == 4).all()
    (root / "objectInfo150.txt").write_text("Idx\tName\n1\twall")
    with pytest.raises(UsageError, match="Expected the names of 150 classes"):
        open_dataset(f"ade20k:{root}")


def test_cityscapes_has_nineteen_classes():
    stored = tf.constant([[[7]], [[8]], [[33]], [[0]], [[9]], [[29]]], tf.uint8)
    found = rule("cityscapes_mask").classify({"segmentation_label": stored})
    assert found.numpy().ravel().tolist() == [0, 1, 18, -1, -1, -1]
    row = known_datasets.row("cityscapes")
    assert (row.image, row.num_classes, row.class_names[13]) == ("image_left", 19, "car")


def test_a_recipe_trains_and_is_evaluated_by_windows(tmp_path, capsys):
    sizes = ((20, 30), (40, 24), (30, 30), (16, 16))
    root = write_masks(tmp_path / "roads", sizes=sizes, names=["road", "tree", "sky"])
    config = overrides.load_config(f"segmenter:ViT-Ti/16,masks:{root},size=16")
    config.model.update(name="", patch_size=4, hidden_size=16, mlp_dim=32, num_heads=2)
    config.model.num_layers = 1
    config.train_preprocess = config.train_preprocess.replace("512, 2048", "20, 80")
    config.update(epochs=0.0, total_steps=2, batch_size=2, eval_every_steps=2, report=False)
    config.train_split = config.eval_split = "train"
    trainer.train(config, tmp_path / "run")
    (root / "images" / "3.png").write_bytes(b"no image")
    more = ("--split=train", "--windows=20", "--stride=8", "--scales=0.5,1", "--flip")
    more = (f"--dataset=masks:{root}", *more, f"--output={tmp_path / 'out'}")
    assert main(["evaluate", str(tmp_path / "run"), *more]) == 0
    printed, said = capsys.readouterr()
    assert "mean IoU" in printed
    assert "Left out: images/3.png: images/3.png cannot be read as an image" in said
    found = json.loads((tmp_path / "out" / "metrics.json").read_text())[f"masks:{root}"]
    model = keras.saving.load_model(tmp_path / "run" / "model.keras")
    function, predicted, labels = compiled_function(model), [], []
    for number, (height, width) in enumerate(sizes[:3]):
        pixels = np.asarray(Image.open(root / "images" / f"{number}.png"), "float32")
        mask = np.asarray(Image.open(root / "masks" / f"{number}.png")).astype(int)
        sides = [tuple(size_between((height, width), x, 4 * x).numpy()) for x in (10, 20)]
        found_here = window_probabilities(function, pixels / 127.5 - 1, 16, 8, sides, flip=True)
        predicted.append(found_here.argmax(-1).ravel())
        labels.append(np.where(mask == 255, -1, mask).ravel())
    predicted, labels = map(np.concatenate, (predicted, labels))
    assert found["miou"] == pytest.approx(mean_iou(predicted, labels, 3), abs=1e-6)
    known = labels >= 0
    assert found["pixels"] == pytest.approx((predicted == labels)[known].mean(), abs=1e-6)
    assert found["count"] == 3 and isinstance(model, keras_vit.Segmenter)


def test_windows_are_of_models_of_masks_of_squares():
    for interface in (Interface((16, 16)), Interface((16, 24), classifies="pixel")):
        model = SimpleNamespace(interface=interface, name="m")
        with pytest.raises(UsageError, match="Expected a model of masks of square images"):
            evaluate_by_windows(model, None, 20)
