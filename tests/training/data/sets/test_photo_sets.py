import os
from itertools import product

import numpy as np
import pytest
from etils import epath

from keras_vit.training import data
from keras_vit.training.data.sets import photo_sets
from keras_vit.training.errors import UsageError
from tests.training.data.helpers import contents, ids, write_photos


def test_sub_folders_are_classes_in_sorted_order_and_names_of_any_bytes(tmp_path):
    write_photos(tmp_path, ["crow/b.jfif", "crow/deep/a.PNG", "Finch/1.png", "crow/notes.txt"])
    os.rename(tmp_path / "crow" / "b.jfif", os.fsencode(tmp_path / "crow") + b"/\xe9\xff.jfif")
    dataset = data.open_dataset(f"folder:{tmp_path}")
    assert dataset.class_names == ("Finch", "crow") and dataset.spec.sizes == {"train": 3}
    examples = data.load_dataset(dataset.name, "train", with_ids=True).as_numpy_iterator()
    labels = {one["id"].decode(): one["label"] for one in examples}
    assert labels == {"crow/\\xe9\\xff.jfif": 1, "crow/deep/a.PNG": 1, "Finch/1.png": 0}
    assert ids(dataset.name) == [*labels]
    split = dataset.split("train")
    assert split.fingerprint["examples"] == 3
    for photo in split.photos:
        assert photo.size == (tmp_path / photo.path).stat().st_size > 0


def test_the_order_is_that_of_a_copy(tmp_path):
    names = [f"{kind}/{number}.png" for kind in "ab" for number in range(10)]
    write_photos(tmp_path / "one", names)
    write_photos(tmp_path / "two", reversed(names))
    orders = [ids(f"folder:{tmp_path / place}") for place in ("one", "two")]
    assert orders[0] == orders[1] and sorted(orders[0]) == sorted(names) != orders[0]
    # Every run on a folder depends on it.
    assert orders[0][:5] == ["b/0.png", "a/0.png", "a/8.png", "a/2.png", "b/3.png"]


def test_folders_without_images_are_explained(tmp_path, ram):
    (tmp_path / "empty" / "crow").mkdir(parents=True)
    write_photos(tmp_path, ["raw/a/1.nef", "raw/b/2.nef"])
    for root, message in (
        ("", r"Expected the path of a folder of images\. Received: ''"),
        (f"{tmp_path}/none", r"/none does not exist\.$"),
        (f"{ram()}/none", r"^Expected a folder .*/none does not exist\.$"),
        (tmp_path / "empty", "one sub-folder for each class"),
        (tmp_path / "raw", r"Found none below .*, but a/1\.nef, b/2\.nef \(\.nef is"),
    ):
        with pytest.raises((FileNotFoundError, ValueError), match=message):
            photo_sets.scan(root)


@pytest.mark.rows(
    (["training/a/1.png", "testing/a/1.png"], "Found testing, training. Rename"),
    (["train/a/1.png", "Valid/a/1.png"], "Found Valid, train. Rename"),
    (["a/1.png", "test/1.png"], "Found test, a. Rename"),
    # No file of labels could hold them.
    (["a/1.png", "two\nlines/1.png"], "in UTF-8 and of one line"),
    (["a/1.png", " /1.png"], "in UTF-8 and of one line"),
    (["a/1.png", "\udce9/1.png"], "Expected names of classes in UTF-8 and of one line"),
)
def test_what_could_be_read_as_two_data_sets_is_refused(names, message, tmp_path):
    write_photos(tmp_path, names)
    with pytest.raises(ValueError, match=message):
        photo_sets.scan(tmp_path)


def test_split_folders_are_splits_and_those_of_systems_are_nothing(tmp_path, caplog):
    splits = ("train", "validation", "valid", "val", "dev", "test")
    write_photos(tmp_path, [f"{name}/{kind}/1.JPE" for name in splits for kind in "ab"])
    for folder in ("", "train", "train/a"):
        names = ["__MACOSX/1.png", ".ipynb_checkpoints/1.png", "__pycache__/1.png"]
        write_photos(tmp_path / folder, names)
    found = photo_sets.scan(tmp_path)
    assert found.class_names == ("a", "b") and not caplog.records
    for name in splits:
        photos = sorted((photo.path, photo.label) for photo in found.splits[name])
        assert photos == [(f"{name}/a/1.JPE", 0), (f"{name}/b/1.JPE", 1)]


@pytest.mark.rows(
    (["a/1.png"], "has one class, a: expected two or more"),
    (["a/1.png", "b/1.png", "c/x.txt"], "1 of 3 classes have no image in the split train"),
    (["train/a/1.png", "train/b/1.png", "test/a/1.png"], "in the split test, such as b"),
    (["Café/1.png", "cafe/1.png", "cafe\u200b/1.png"], "Café, cafe, cafe\u200b differ in case"),
    (["a/1.png", "b/1.png", "b/2.cr2", "b/3.NEF"], "b/2.cr2 (.cr2 is not read: convert it to"),
    (["a/1.png", "b/1.png", "b/2"], "{root}: left out: b/2 (no extension)"),
    (["a/1.png", "b/1.png", "2.png"], "1 images beside the folders of classes, such as 2.png"),
    (["1/a/1.png", "1/b/1.png", "2/a/1.png", "2/b/1.png"], "every class, such as 1/, holds"),
)
def test_what_trains_another_model_than_one_thinks_is_logged(names, message, tmp_path, caplog):
    write_photos(tmp_path, names)
    photo_sets.scan(tmp_path)
    assert message.format(root=tmp_path) in caplog.text


def test_links_are_followed_down_to_the_classes(tmp_path):
    write_photos(tmp_path, ["there/1.png", "set/b/1.png"])
    (tmp_path / "set" / "a").symlink_to(tmp_path / "there")
    # Links that lead back, which would never end, and a pipe.
    (tmp_path / "set" / "b" / "deep").mkdir()
    (tmp_path / "set" / "b" / "deep" / "again").symlink_to(tmp_path / "set" / "b")
    (tmp_path / "set" / "b" / "self.png").symlink_to("self.png")
    os.mkfifo(tmp_path / "set" / "b" / "pipe.png")
    assert sorted(ids(f"folder:{tmp_path / 'set'}")) == ["a/1.png", "b/1.png"]


@pytest.mark.rows(("b/back", "b"), ("b/up", "."), ("b/other", "a"), ("c", "a"))
def test_photos_that_a_link_would_count_twice_are_refused(link, target, tmp_path):
    write_photos(tmp_path, ["a/1.png", "b/1.png"])
    (tmp_path / link).symlink_to(tmp_path / target)
    with pytest.raises(ValueError, match=r"each folder of photos once\. .* Remove the link"):
        photo_sets.scan(tmp_path)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_to_a_photo_give_it_several_labels(link, tmp_path, caplog):
    tmp_path /= "my photos"
    names = ["1.png", "2.png", "car/3.png", "dog/deep/4.png", "car/same_size_and_time.png"]
    write_photos(tmp_path, names)
    os.utime(tmp_path / "car" / "same_size_and_time.png", ns=(5, 5))
    os.utime(tmp_path / "car" / "3.png", ns=(5, 5))
    for source, target in (
        ("1.png", "dog/1.png"),
        ("1.png", "car/other_name.png"),
        ("car/3.png", "dog/3.png"),
        ("dog/deep/4.png", "dog/4.png"),  # twice in one class
    ):
        link(tmp_path / source, tmp_path / target)
    found = photo_sets.read(f"labels:{tmp_path}")
    assert found.class_names == ("car", "dog") and found.kind == "labels" and not caplog.records
    assert found.targets == {
        "1.png": (1, 1),
        "2.png": (0, 0),
        "car/3.png": (1, 1),
        "car/same_size_and_time.png": (1, 0),
        "dog/4.png": (0, 1),
    }
    assert sorted(photo.path for photo in found.splits["train"]) == sorted(found.targets)
    assert {photo.label for photo in found.splits["train"]} == {0}
    expected = rf"one class of each photo\. .+ are the same.*='own_photos:labels:{tmp_path}'$"
    with pytest.raises(ValueError, match=expected):
        photo_sets.scan(tmp_path)


def test_folders_of_links_without_links_are_doubted(tmp_path, ram, caplog, monkeypatch):
    for root in (tmp_path, epath.Path(ram())):
        write_photos(root, ["test/a/1.png", "test/b/2.png", "train/a/1.png", "train/a/2.png"])
        assert photo_sets.read(f"labels:{root}").targets["test/b/2.png"] == (0, 1)
        assert "no photo is in two classes. Expected links: a copy counts as anot" in caplog.text
        assert "1 of 2 classes have no image in the split train, such as b" in caplog.text
        caplog.clear()
    (tmp_path / "test").rename(tmp_path / "none")
    (tmp_path / "train" / "b").mkdir()
    os.link(tmp_path / "train/a/1.png", tmp_path / "train/b/1.png")
    photo_sets.read(f"labels:{tmp_path / 'train'}")
    assert "every photo is in a. Put" in caplog.text and "no photo" not in caplog.text
    with pytest.raises(ValueError, match="in one sub-folder for each class"):
        photo_sets.read(f"labels:{tmp_path / 'none' / 'b'}")
    (tmp_path / "train").rename(tmp_path / "labels")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="one class of each photo"):
        photo_sets.read("labels")  # a folder of that name


def test_a_folder_in_a_store_is_that_of_a_disk(tmp_path, ram, monkeypatch):
    names = ["train/b/1.png", "train/a/deep/1.png", "train/a/2.JPG", "test/b/1.png"]
    passed_over = ["train/a/.hidden.png", "train/__MACOSX/1.png", "train/b/notes.txt"]
    address = epath.Path(ram()) / "photos"
    for root in (tmp_path, address):
        write_photos(root, [*names, *passed_over])
    local, remote = (data.open_dataset(f"folder:{root}") for root in (tmp_path, address))
    assert remote.class_names == local.class_names == ("a", "b")
    for split in ("train", "test"):
        found = ids(local.name, split)
        assert ids(remote.name, split) == found
        assert sorted(found) == sorted(name for name in names if name.startswith(split))
        assert contents(remote.name, split) == contents(local.name, split)
    assert remote.split("train").reader.remote
    asked, is_dir = [], type(address).is_dir
    monkeypatch.setattr(type(address), "is_dir", lambda path: asked.append(path) or is_dir(path))
    photo_sets.scan(str(address))
    # A request for each photo would be one for each of a million.
    assert not [path for path in asked if path.suffix in (".png", ".JPG")]


def write_table(root, rows, columns="path,label,split"):
    (root / "photos.csv").write_text("\n".join([columns, *rows]) + "\n")
    return f"csv:{root}/photos.csv"


def test_a_table_is_a_data_set(tmp_path):
    parts = [*product(("train", "test"), "ab", "12")]
    names = ["/".join(part) + ".jpg" for part in parts]
    write_photos(tmp_path, names)
    name = write_table(tmp_path, [f"{s}/{kind}/{k}.jpg,{kind},{s}" for s, kind, k in parts])
    dataset = data.open_dataset(name)
    assert dataset.class_names == ("a", "b") and dataset.spec.sizes == {"train": 4, "test": 4}
    assert ids(name) == names[:4] and ids(name, "test") == names[4:]  # In the order of its rows.
    for split in ("train", "test"):
        assert contents(name, split) == contents(f"folder:{tmp_path}", split)
    ours, theirs = (data.open(each, "train[:50%]") for each in (name, f"folder:{tmp_path}"))
    assert ours.fingerprint["classes"] == theirs.fingerprint["classes"]
    # Nothing of a cache is that of the same photos under other labels.
    table = tmp_path / "photos.csv"
    table.write_text(table.read_text().replace(",a,", ",c,"))
    assert data.open(name, "train[:50%]").identity != ours.identity


def test_a_table_may_lack_splits_and_name_photos_elsewhere(tmp_path, ram):
    bucket = ram()
    write_photos(epath.Path(bucket), ["1.png"])
    write_photos(tmp_path, ["2.png", "3.png"])
    (tmp_path / "set").mkdir()
    rows = [f"{bucket}/1.png,crow", f"{tmp_path}/2.png, owl ", "../3.png,owl"]
    # With the mark and spaces of Excel.
    split = data.open(write_table(tmp_path / "set", rows, "\ufeffpath,label"), "train")
    assert [photo.label for photo in split.photos] == [0, 1, 1]
    pictures = [split.read(index)["image"].numpy() for index in range(3)]
    assert pictures[1:] == [(tmp_path / f"{name}.png").read_bytes() for name in "23"]
    assert pictures[0] == epath.Path(f"{bucket}/1.png").read_bytes() and split.reader.remote
    with pytest.raises(ValueError, match="Unknown split 'test'"):
        split.dataset.split("test")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_tables_of_spreadsheets_are_read(separator, encoding, tmp_path):
    write_photos(tmp_path, ["bé/1.png", "bé/2;,\t.png", "b\\3.png"])
    rows = ["path|label||", "bé\\1.png|owl||", "b\\3.png|owl"]
    rows.insert(2, '"bé\\2;,\t.png"|"crow, ""big""; né"|x')
    text = "\r\n".join([*rows, "||", " ", ""]).replace("|", separator)
    for above in ("", f"sep={separator}\r\n"):
        mark = "\ufeff" if encoding == "utf-16-be" else ""
        (tmp_path / "photos.csv").write_bytes((mark + above + text).encode(encoding))
        split = data.open(f"csv:{tmp_path}/photos.csv", "train")
        assert split.dataset.class_names == ('crow, "big"; né', "owl")
        expected = [("bé/1.png", 1), ("bé/2;,\t.png", 0), ("b\\3.png", 1)]
        assert [(photo.path, photo.label) for photo in split.photos] == expected
        (tmp_path / "photos.csv").write_bytes((mark + above + text + "none.png").encode(encoding))
        with pytest.raises(UsageError, match=f"Line {7 + bool(above)} of .* has no label"):
            data.open_dataset(f"csv:{tmp_path}/photos.csv")


def test_quoted_names_of_columns_hold_other_separators_and_old_encodings_are_refused(tmp_path):
    name = write_table(tmp_path, ["photos.csv;crow;"], 'path;label;"notes, if any, or none, yet"')
    found = data.open_dataset(name)
    assert found.class_names == ("crow",) and found.photos.splits["train"][0].path == "photos.csv"
    (tmp_path / "photos.csv").write_bytes("path,label\n1.png,né".encode("cp1252"))
    with pytest.raises(ValueError, match=r"Expected a text in UTF-8\. .*names that “CSV UTF-8”"):
        data.open_dataset(f"csv:{tmp_path}/photos.csv")


@pytest.mark.rows(
    ("path,labels", ["a; c", "", "c"], "labels", ("a", "c"), [[1, 1], [0, 0], [0, 1]]),
    ("path,b,a", ["1,0", ",1", "0,"], "labels", ("b", "a"), [[1, 0], [None, 1], [0, None]]),
    ("path,value,note", ["1.5,x", "-2,", "0,y"], "numbers", ("value",), [[1.5], [-2], [0]]),
    ("path,h,w", ["7,2", ",3", "0,0"], "numbers", ("h", "w"), [[7, 2], [None, 3], [0, 0]]),
)
def test_tables_of_several_labels_and_of_numbers(columns, rows, kind, names, expected, tmp_path):
    write_photos(tmp_path, ["0.png", "1.png", "2.png"])
    table = [f"{number}.png,{row}" for number, row in enumerate(rows)]
    name = write_table(tmp_path, table, columns)
    split = data.open(name, "train")
    assert (split.dataset.kind, split.dataset.class_names) == (kind, names)
    found = [split.read(index)["label"].numpy() for index in range(3)]
    np.testing.assert_array_equal(found, np.array(expected, "float32"))
    batch = next(
        iter(data.load_dataset(name, "train", preprocess="decode|resize(8)", batch_size=3))
    )
    np.testing.assert_array_equal(batch["label"], np.array(expected, "float32"))
    # Nothing of a cache is that of the same photos with other numbers.
    write_table(tmp_path, [*table[:2], table[2].replace("c", "a").replace(",0", ",1")], columns)
    assert data.open(name, "train").identity != split.identity


@pytest.mark.rows(
    ("path,split", "a.jpg,b", "Expected the columns path and label.* has path,split"),
    ("path,labels,label", "photos.csv,b,b", "has path,labels,label"),
    ("path,Labels", "photos.csv,b", "in small letters.* has path,Labels"),
    ("path,class", "photos.csv,b", "column class of .*'b' for photos.csv. Classes stand in a"),
    ("path,value", "photos.csv,", "Line 2 of .* has no value"),
    ("path,value", "photos.csv,1e60", "Expected a finite number.* Received: '1e60'"),
    ("path,value", "photos.csv,3", "Expected numbers that differ in the column value"),
    ("path,a,b", "photos.csv,1,", "Expected a number in one row at least in the column b"),
    ("path,labels", "photos.csv,;", "Expected names in the column labels"),
    ("path,label,label", "photos.csv,crow,owl", "has path,label,label"),
    ("path,label,Split", "photos.csv,crow,test", "in small letters.* has path,label,Split"),
    ("path,label", "photos.csv,a\n./photos.csv,b", r"Line 3 of .* \./photos.csv, which line 2"),
    ("path,label", "photos.csv,a\nlink.csv,b", "link.csv, which line 2 has too"),
    ("path,label", "photos.csv,crow, black", "Line 2 of .* has more than 2 cells: quote"),
    ("path,label,split", "photos.csv,a,test\nother.csv,a,Test", "one spelling. .* test, Test"),
    ("path,label", "", "has none"),
    ("path,label", "none.jpg,crow", "Line 2 of .* has .*none.jpg, which is not there"),
    ("path,label", ",crow", "Line 2 of .* has no path"),
    ("path,label", "photos.csv,", "Line 2 of .* has no label"),
    ("path,label,split", "photos.csv,crow,Test", "in small letters. .* has Test"),
    ("path,label", 'photos.csv,"two\nlines"', "a cell of several lines: close its quote"),
    ("path,label,note", 'photos.csv,a,"5 inch\nother.csv,b,', "no row of CSV: unexpected end"),
    ('"path" ,"label"', "photos.csv,crow", "Line 1 of .* is no row of CSV"),
    ("path,label,note", f"photos.csv,a,{'x' * 200_000}", "Line 2 .* no row of CSV: field"),
    ("path,label", "photos.csv,zero\0", "without the character 0"),
    ("path,label", "photos\0.csv,zero", "without the character 0"),
)
def test_tables_that_cannot_be_read_are_explained(columns, row, message, tmp_path):
    name = write_table(tmp_path, [row] if row else [], columns)
    (tmp_path / "other.csv").touch()
    (tmp_path / "link.csv").symlink_to("photos.csv")
    with pytest.raises((UsageError, ValueError), match=message) as error:
        data.open_dataset(name)
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError, match="Expected the CSV file"):
        data.open_dataset(f"csv:{tmp_path}")
