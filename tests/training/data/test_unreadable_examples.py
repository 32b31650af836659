import io
import random

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from training.data import load_dataset, pipeline
from training.data.preprocessing.preprocess import Preprocess
from training.data.skip_counter import SkipCounter

TEXT = "decode|inception_crop(8)|value_range(-1,1)"


def encode(level, file_format="JPEG", size=(24, 32)):
    buffer = io.BytesIO()
    Image.new("RGB", (size[1], size[0]), (level, level, level)).save(buffer, file_format)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Twelve images, two of which are damaged: one empty, one cut short."""
    for number in range(12):
        path = tmp_path / f"class{number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode(number * 20))
    (tmp_path / "class0" / "04.jpg").write_bytes(b"")
    damaged = tmp_path / "class1" / "07.jpg"
    damaged.write_bytes(damaged.read_bytes()[:200])
    return f"folder:{tmp_path}"


DAMAGED = {"class0/04.jpg", "class1/07.jpg"}


def train(folder, on_error, split="train", **changes):
    return pipeline.train_dataset(
        name=folder,
        split=split,
        preprocess=TEXT,
        batch_size=6,
        seed=0,
        on_error=on_error,
        **changes,
    )


def test_raise_names_the_error(folder):
    with pytest.raises(tf.errors.OpError):
        list(train(folder, "raise").take(2))


def test_skip_fills_the_place_and_counts(folder):
    counter = SkipCounter()
    batches = list(train(folder, "skip", skip_counter=counter).take(2))
    assert [batch["image"].shape[0] for batch in batches] == [6, 6]
    levels = np.concatenate([b["image"][:, 0, 0, 0] for b in batches])
    labels = np.concatenate([np.argmax(b["label"], axis=1) for b in batches])
    levels = np.round((levels + 1) * 127.5 / 20).astype(int)
    # The neighbor came with its own label.
    assert (levels % 2 == labels).all()
    assert 4 not in levels
    assert 7 not in levels
    assert set(counter.examples) == DAMAGED


def test_skipping_keeps_the_order_of_all_others(folder):
    whole = [b["image"].numpy() for b in train(folder, "skip").take(4)]
    resumed = [b["image"].numpy() for b in train(folder, "skip", start_step=2).take(2)]
    np.testing.assert_array_equal(resumed, whole[2:])


def test_a_run_counts_only_what_it_skips(folder):
    first, second = SkipCounter(), SkipCounter()
    list(train(folder, "skip", skip_counter=first).take(2))
    list(train(folder, "raise", split="train[:1]", skip_counter=second).take(1))
    assert set(first.examples) == DAMAGED
    assert not second.examples


def test_evaluation_masks_and_counts(folder):
    counter = SkipCounter()
    batches = list(
        pipeline.eval_dataset(
            name=folder,
            split="train",
            preprocess="decode|resize(8)",
            batch_size=8,
            on_error="skip",
            skip_counter=counter,
        )
    )
    masks = np.concatenate([batch["mask"] for batch in batches])
    assert masks.tolist().count(1.0) == 10
    assert len(masks) == 16
    assert counter.examples == dict.fromkeys(DAMAGED, 1)
    assert counter.count == 2


def test_load_dataset_leaves_out_and_counts(folder):
    counter = SkipCounter()
    found = list(
        load_dataset.load_dataset(
            folder, "train", with_ids=True, on_error="skip", skip_counter=counter
        )
    )
    assert len(found) == 10
    assert not DAMAGED & {one["id"].numpy().decode() for one in found}
    assert counter.examples == dict.fromkeys(DAMAGED, 1)
    with pytest.raises(tf.errors.OpError):
        list(load_dataset.load_dataset(folder, "train"))


def test_a_pipeline_that_fails_everywhere_raises_its_own_error(digits_dir):
    dataset = pipeline.train_dataset(
        name="digits",
        split="train",
        preprocess="decode|random_crop(999)",
        batch_size=2,
        seed=0,
        data_dir=digits_dir,
        on_error="skip",
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least that large"):
        list(dataset.take(1))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_fuzzed_bytes_decode_or_raise(file_format):
    rng = random.Random(0)
    seeds = [encode(90, file_format, (17, 23))]
    if file_format == "JPEG":
        noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
        for mode in ("RGB", "L", "CMYK"):
            buffer = io.BytesIO()
            Image.fromarray(noise).convert(mode).save(buffer, "JPEG", progressive=mode == "RGB")
            seeds.append(buffer.getvalue())

    def compiled(text):
        process = Preprocess(text)
        return tf.function(lambda data: process(data, (0, 0)), autograph=False)

    texts = (TEXT, "decode|resize(8)", "decode|resize_small(8)|central_crop(8)")
    functions = [compiled(text) for text in texts]
    outcomes = {"decoded": 0, "refused": 0}
    for _ in range(120):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice([1, 2, 8, 64])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for function in functions:
            try:
                image = function(tf.constant(bytes(data)))
                assert image.shape == (8, 8, 3)
                assert np.isfinite(image).all()
                outcomes["decoded"] += 1
            except (tf.errors.InvalidArgumentError, tf.errors.DataLossError):
                outcomes["refused"] += 1
    assert outcomes["refused"] > 0
    # A PNG's checksums refuse every change; other formats decode what they can.
    assert (outcomes["decoded"] > 0) == (file_format != "PNG")
