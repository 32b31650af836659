import os

import numpy as np
import pytest
import tensorflow as tf
from etils import epath

from training.data import dataset_lookup, image_folder, load_dataset
from training.errors import UsageError


def fill(root, names):
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = np.full((3, 4, 3), number, np.uint8)
        path.write_bytes(tf.io.encode_png(image).numpy())


def test_sub_folders_are_classes_in_sorted_order(tmp_path):
    fill(tmp_path, ["crow/b.png", "crow/deep/a.PNG", "Finch/1.png", "crow/notes.txt"])
    spec = dataset_lookup.get(f"folder:{tmp_path}")
    assert spec.class_names == ("Finch", "crow")
    assert spec.sizes == {"train": 3}
    labels = {
        one["id"].numpy().decode(): int(one["label"])
        for one in load_dataset.load_dataset(f"folder:{tmp_path}", "train", with_ids=True)
    }
    assert labels == {"crow/b.png": 1, "crow/deep/a.PNG": 1, "Finch/1.png": 0}


def test_names_of_any_bytes(tmp_path):
    fill(tmp_path, ["crow/a.png", "finch/b.png"])
    os.rename(tmp_path / "crow" / "a.png", os.fsencode(tmp_path / "crow") + b"/\xe9\xff.png")
    name = f"folder:{tmp_path}"
    assert sorted(load_dataset.example_ids(name, "train")) == ["crow/\\xe9\\xff.png", "finch/b.png"]
    ids = {one["id"].numpy() for one in load_dataset.load_dataset(name, "train", with_ids=True)}
    assert ids == {b"crow/\xe9\xff.png", b"finch/b.png"}
    os.rename(tmp_path / "crow", os.fsencode(tmp_path) + b"/\xe9")
    with pytest.raises(ValueError, match="Expected names of classes in UTF-8"):
        image_folder.scan(tmp_path)


def test_split_folders_are_splits_with_the_same_classes(tmp_path):
    fill(tmp_path, ["train/b/1.png", "train/a/1.png", "test/b/1.png"])
    contents = image_folder.scan(tmp_path)
    assert contents.class_names == ("a", "b")
    assert contents.splits["test"] == [("test/b/1.png", 1)]
    assert sorted(contents.splits["train"]) == [("train/a/1.png", 0), ("train/b/1.png", 1)]


def test_percentages_mix_the_classes_and_survive_a_copy(tmp_path):
    names = [f"{kind}/{number}.png" for kind in "abcd" for number in range(50)]
    fill(tmp_path / "one", names)
    fill(tmp_path / "two", reversed(names))
    ids = [
        load_dataset.example_ids(f"folder:{tmp_path / place}", "train[:25%]")
        for place in ("one", "two")
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 50
    counts = [sum(name.startswith(kind) for name in ids[0]) for kind in "abcd"]
    assert min(counts) >= 6
    rest = load_dataset.example_ids(f"folder:{tmp_path / 'one'}", "train[25%:]")
    assert sorted([*ids[0], *rest]) == sorted(names)


def test_folders_without_images_are_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        dataset_lookup.get(f"folder:{tmp_path}/nowhere")
    (tmp_path / "crow").mkdir()
    with pytest.raises(ValueError, match="one sub-folder for each class"):
        dataset_lookup.get(f"folder:{tmp_path}")


@pytest.mark.parametrize("name", ["folder:", "folder: "])
def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch, name):
    fill(tmp_path, ["crow/1.png"])
    monkeypatch.chdir(tmp_path)
    assert dataset_lookup.get("folder:.").sizes == {"train": 1}
    with pytest.raises(ValueError, match="Expected the path of a folder of images"):
        dataset_lookup.get(name)
    with pytest.raises(ValueError, match="Expected the path of a folder of images"):
        load_dataset.load_dataset(name, "train")


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev", "test"])
def test_every_usual_name_of_a_split(tmp_path, name):
    fill(tmp_path, ["train/a/1.png", "train/b/1.png", f"{name}/a/1.png", f"{name}/b/1.png"])
    contents = image_folder.scan(tmp_path)
    assert contents.class_names == ("a", "b")
    assert {split: len(files) for split, files in contents.splits.items()} == {"train": 2, name: 2}


def test_splits_beside_other_folders_are_refused(tmp_path):
    fill(tmp_path, ["train/a/1.png", "extra/b/1.png"])
    with pytest.raises(ValueError, match=r"either classes or splits .*Found train beside extra"):
        image_folder.scan(tmp_path)


@pytest.mark.parametrize("names", [("Train", "Test"), ("training", "testing"), ("train", "Valid")])
def test_what_is_nearly_called_a_split_is_refused(tmp_path, names):
    fill(tmp_path, [f"{split}/{name}/1.png" for split in names for name in "ab"])
    with pytest.raises(ValueError, match=rf"to be called train, .* Found .*{names[1]}.* Rename"):
        image_folder.scan(tmp_path)


@pytest.mark.parametrize("name", ["two\nlines", " ", "carriage\r"])
def test_names_that_no_file_of_labels_can_hold_are_refused_before_training(tmp_path, name):
    fill(tmp_path, ["a/1.png", f"{name}/1.png"])
    with pytest.raises(ValueError, match="in UTF-8 and of one line"):
        image_folder.scan(tmp_path)


def test_other_names_of_jpeg_files_are_read(tmp_path):
    fill(tmp_path, ["a/1.jfif", "a/2.JPE", "b/1.png"])
    assert len(image_folder.scan(tmp_path).splits["train"]) == 3


def test_folders_of_systems_are_neither_classes_nor_splits(tmp_path, caplog):
    names = ["__MACOSX/1.png", ".ipynb_checkpoints/1.png", "__pycache__/1.png"]
    fill(tmp_path, ["train/a/1.png", "train/b/1.png", *names])
    fill(tmp_path / "train", names)
    fill(tmp_path / "train" / "a", names)
    contents = image_folder.scan(tmp_path)
    assert contents.class_names == ("a", "b")
    assert sorted(contents.splits["train"]) == [("train/a/1.png", 0), ("train/b/1.png", 1)]
    assert not caplog.records


@pytest.mark.parametrize(
    "names, message",
    [
        (["a/1.png", "test/1.png"], "test, beside other classes, is read as a class"),
        (["a/1.png"], "has one class, a: expected two or more"),
        (
            ["a/1.png", "b/1.png", "c/notes.txt"],
            "1 of 3 classes have no image in the split train: c",
        ),
        (
            ["train/a/1.png", "train/b/1.png", "test/a/1.png", "test/d/1.png"],
            "1 of 3 classes have no image in the split test: b",
        ),
        (["a/1.png", "b/1.png", "b/2.avif", "b/3.HEIC"], "1 .avif, 1 .heic, which are not read"),
        (["a/1.png", "b/1.png", "2.png"], "1 images beside the folders of classes, such as 2.png"),
        (
            ["2023/a/1.png", "2023/b/1.png", "2024/a/1.png", "2024/b/1.png"],
            "every class, such as 2023, holds the folders a, b. If these are the classes, move",
        ),
    ],
)
def test_what_trains_another_model_than_one_thinks_is_logged(tmp_path, caplog, names, message):
    fill(tmp_path, names)
    image_folder.scan(tmp_path)
    assert message in caplog.text


def test_formats_that_are_not_read_are_named(tmp_path):
    fill(tmp_path, ["a/1.heic", "b/2.heic"])
    with pytest.raises(ValueError, match=r"Found none below .*, but 2 \.heic\."):
        image_folder.scan(tmp_path)


def test_a_folder_in_a_store_is_that_of_a_disk(tmp_path, ram, monkeypatch):
    names = ["train/b/1.png", "train/a/deep/1.png", "train/a/2.JPG", "test/b/1.png"]
    passed_over = ["train/a/.hidden.png", "train/__MACOSX/1.png", "train/b/notes.txt"]
    address = epath.Path(ram()) / "photos"
    for root in (tmp_path, address):
        fill(root, [*names, *passed_over])
    local, remote = (image_folder.scan(root) for root in (tmp_path, str(address)))
    assert remote[1:] == local[1:]
    for split in ("train", "test"):
        ours, theirs = (
            list(load_dataset.load_dataset(f"folder:{root}", split, with_ids=True))
            for root in (address, tmp_path)
        )
        assert len(ours) == len(theirs) == len(local.splits[split])
        for one, two in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one["image"], two["image"])
            assert (one["id"], one["label"]) == (two["id"], two["label"])

    asked = []
    is_dir = type(address).is_dir
    monkeypatch.setattr(type(address), "is_dir", lambda path: asked.append(path) or is_dir(path))
    image_folder.scan(str(address))
    # A request for each photo would be one for each of a million.
    assert not [path for path in asked if path.suffix in (".png", ".JPG")]


def test_a_folder_that_no_store_has_is_named(ram):
    with pytest.raises(
        UsageError, match=r"ram://.*/none cannot be read: .* does not exist"
    ) as error:
        image_folder.scan(f"{ram()}/none")
    assert "\n" not in str(error.value)
