"""`model.fit` on the loaders of others; `make test-torch` installs them."""

import keras
import numpy as np
import pytest

from tests.tiny_vit import tiny_vit

RNG = np.random.default_rng(0)
PHOTOS = RNG.integers(0, 255, (12, 16, 16, 3)).astype("uint8")
LABELS = np.arange(12) % 5


def prepared(photos):
    return np.asarray(photos, "float32") / 127.5 - 1


class Photos(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(4 * index, 4 * index + 4)
        return prepared(PHOTOS[rows]), LABELS[rows]


def of_grain(folder):
    grain = pytest.importorskip("grain")
    source = grain.MapDataset.source(range(12))
    rows = source.map(lambda index: (prepared(PHOTOS[index]), LABELS[index]))
    return rows.batch(4).to_iter_dataset()


def of_grain_loader(folder):
    grain = pytest.importorskip("grain.python")

    class Prepare(grain.MapTransform):
        def map(self, index):
            return prepared(PHOTOS[index]), LABELS[index]

    sampler = grain.SequentialSampler(12, grain.NoSharding())
    operations = [Prepare(), grain.Batch(4)]
    return grain.DataLoader(data_source=range(12), sampler=sampler, operations=operations)


def of_hugging_face(folder):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"image": [*PHOTOS], "label": LABELS})
    rows.to_parquet(folder / "photos.parquet")
    read = datasets.load_dataset("parquet", data_files=f"{folder}/*.parquet", split="train")

    class Rows(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            batch = read[4 * index : 4 * index + 4]
            return prepared(batch["image"]), np.array(batch["label"])

    return Rows()


@pytest.mark.parametrize(
    "make", [lambda folder: Photos(), of_grain, of_grain_loader, of_hugging_face]
)
def test_fit_on_a_loader_is_fit_on_its_arrays(make, tmp_path):
    weights = []
    for data in ({"x": make(tmp_path)}, {"x": prepared(PHOTOS), "y": LABELS, "batch_size": 4}):
        keras.utils.set_random_seed(0)
        model = tiny_vit(num_layers=1)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(**data, epochs=2, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, two in zip(*weights, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
