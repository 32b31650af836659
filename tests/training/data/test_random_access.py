import numpy as np
import pytest
import tensorflow_datasets as tfds

from training.data import dataset_lookup, known_datasets, load_dataset, random_access

EDGES = {
    "clevr_distance": (0, 8, 8.5, 9, 9.5, 10, 100),
    "kitti_distance": (-100, 8, 20, 999),
}

# Rules in numpy, from a decoded example of TFDS.
RULES = {
    "clevr_count": lambda one: len(one["objects"]["size"]) - 3,
    "clevr_distance": lambda one: (
        np.searchsorted(EDGES["clevr_distance"], one["objects"]["pixel_coords"][:, 2].min()) - 1
    ),
    "kitti_distance": lambda one: (
        np.searchsorted(
            EDGES["kitti_distance"],
            min(
                [1000.0]
                + [
                    place[2]
                    for place, kind in zip(
                        one["objects"]["location"], one["objects"]["type"], strict=True
                    )
                    if kind in (0, 1, 2)
                ]
            ),
        )
        - 1
    ),
    "dsprites_location": lambda one: one["label_x_position"] // 2,
    "dsprites_orientation": lambda one: int(one["label_orientation"] / 2.5),
}

NAMES = [name for name in known_datasets.DATASETS if name not in ("digits", "imagenet21k")]


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_as_its_own_builder_writes_it(name, tiny, resize_row):
    spec = dataset_lookup.get(name)
    sizes = {split: 5 + number for number, split in enumerate(spec.sizes)}
    data_dir = tiny(spec.builder, {split: [{}] * size for split, size in sizes.items()})
    resize_row(name, sizes)
    builder = tfds.builder_from_directory(dataset_lookup.locate(spec, data_dir).directory)
    theirs = {}
    for split in sizes:
        dataset = builder.as_dataset(split, read_config=tfds.ReadConfig(add_tfds_id=True))
        theirs.update({one["tfds_id"]: one for one in tfds.as_numpy(dataset)})

    split = "trainval" if name.startswith("vtab/") else next(iter(sizes))
    ours = list(
        load_dataset.load_dataset(name, split, data_dir=data_dir, with_ids=True).as_numpy_iterator()
    )
    assert len(ours) == dataset_lookup.get(name).num_examples(split)
    ids = [one["id"].decode() for one in ours]
    assert load_dataset.example_ids(name, split, data_dir=data_dir) == ids
    assert len(set(ids)) == len(ids)
    for one in ours:
        reference = theirs[one["id"]]
        scale = 255 if "dsprites" in name else 1
        image = np.broadcast_to(reference["image"] * scale, one["image"].shape)
        np.testing.assert_array_equal(one["image"], image.astype(np.uint8))
        assert one["image"].shape[-1] == 3
        if name == "imagenet2012_real":
            classes = np.zeros(1_000)
            classes[reference["real_label"]] = 1
            np.testing.assert_array_equal(one["label"], classes)
        else:
            rule = RULES.get(spec.label, lambda example: example[spec.label])
            assert one["label"] == rule(reference)
            assert 0 <= one["label"] < spec.num_classes


def test_slices_across_shards_name_what_tfds_names(tmp_path):
    class ManyShards(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.2.3")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(2, 2, 3)),
                "label": tfds.features.ClassLabel(num_classes=50),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"full": self._generate_examples()}

        def _generate_examples(self):
            for number in range(50):
                yield number, {"image": np.full((2, 2, 3), number, np.uint8), "label": number}

    builder = ManyShards(data_dir=tmp_path)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=7))
    assert len(builder.info.splits["full"].shard_lengths) == 7
    # One shard at a time, as TFDS otherwise mixes them.
    config = tfds.ReadConfig(add_tfds_id=True, interleave_cycle_length=1)
    for split in ("full", "full[5:31]", "full[-3:]", "full[40%:60%]"):
        theirs = [
            (one["tfds_id"], one["label"])
            for one in tfds.as_numpy(builder.as_dataset(split, read_config=config))
        ]
        name = "tfds:many_shards:1.2.3"
        ours = load_dataset.load_dataset(name, split, data_dir=tmp_path, with_ids=True)
        assert [(one["id"], one["label"]) for one in ours.as_numpy_iterator()] == theirs


def test_a_copy_of_another_size_is_refused(tiny):
    data_dir = tiny("cifar10", {"train": [{}] * 4, "test": [{}] * 2})
    with pytest.raises(ValueError, match=r"Expected 50000 examples .* holds 4\."):
        random_access.open_source("cifar10", "train", data_dir)
    # Under its own name any copy is welcome.
    assert random_access.open_source("tfds:cifar10", "train", data_dir).num_examples == 4


def test_an_older_version_on_disk_is_found(tiny, resize_row):
    data_dir = tiny("oxford_flowers102", {"train": [{}] * 4})
    folder = data_dir / "oxford_flowers102"
    (folder / "2.1.1").rename(folder / "2.0.0")
    info = folder / "2.0.0" / "dataset_info.json"
    info.write_text(info.read_text().replace("2.1.1", "2.0.0"))
    resize_row("oxford_flowers102", {"train": 4})
    assert random_access.open_source("flowers", "train", data_dir).num_examples == 4


def test_an_interrupted_preparation_is_explained(tmp_path):
    (tmp_path / "cifar10" / "3.0.2").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"no dataset_info\.json.*Delete the folder"):
        random_access.open_source("cifar10", "train", tmp_path)


def test_a_configuration_must_be_named_if_there_are_several(tiny):
    data_dir = tiny("eurosat/rgb", {"train": [{}] * 3})
    assert dataset_lookup.get("tfds:eurosat/rgb", data_dir).sizes == {"train": 3}
    with pytest.raises(FileNotFoundError, match="write tfds:eurosat/rgb"):
        dataset_lookup.get("tfds:eurosat", data_dir)


def test_class_names_come_from_the_copy(tiny):
    spec = dataset_lookup.get("tfds:eurosat/rgb", tiny("eurosat/rgb", {"train": [{}] * 2}))
    assert spec.class_names[:2] == ("AnnualCrop", "Forest")
    assert len(spec.class_names) == spec.num_classes == 10
