import numpy as np
import pytest
import tensorflow as tf

from training.data import dataset_lookup, image_folder, load_dataset


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
