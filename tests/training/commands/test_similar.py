import csv
import sys

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from keras_vit.training.evaluators import nearest_neighbors
from keras_vit.training.prediction.predictor import Predictor
from tests.keras_vit.small import make_vit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("similar")
    (root / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(5):
        pixels = rng.integers(0, 255, (20, 20, 3), "uint8")
        Image.fromarray(pixels).save(root / "photos" / f"{number}.png")
        pixels[0, 0] = 255 - pixels[0, 0]
    Image.fromarray(pixels).save(root / "photos" / "4 again.png")
    (root / "photos" / "broken.png").write_bytes(b"no image")
    make_vit(num_classes=None).save(root / "m.keras")
    return root


def test_neighbors_are_those_of_the_representations(folder, tmp_path, printed, refused):
    out, photos = tmp_path / "out", folder / "photos"
    files = [str(photos / f"{name}.png") for name in ("0", "1", "2", "3", "4 again", "4")]
    found = Predictor(folder / "m.keras", files, representation=True, answers=False)
    features = np.stack([each.representation for each in found.predict(range(6))])
    cosines = features / np.linalg.norm(features, axis=1)[:, None]
    cosines = cosines @ cosines.T - 9 * np.eye(6)
    others = np.sort(cosines, axis=None)[-3]
    assert cosines[4, 5] - others > 1e-4
    near = f"--near={(cosines[4, 5] + others) / 2}"
    arguments = ["similar", folder / "m.keras", photos, f"--output={out}", "--count=2", near]
    assert "near-duplicates: 1 pair" in printed(*arguments)
    rows = pyarrow.parquet.read_table(out / "neighbors.parquet").to_pylist()
    expected = [
        (files[i], files[j], cosines[i, j]) for i in range(6) for j in np.argsort(-cosines[i])[:2]
    ]
    assert [(row["photo"], row["neighbor"]) for row in rows] == [row[:2] for row in expected]
    values = [row["similarity"] for row in rows]
    np.testing.assert_allclose(values, [row[2] for row in expected], atol=1e-5)
    with open(out / "near_duplicates.csv") as file:
        (pair,) = csv.DictReader(file)
    assert {pair["photo"], pair["neighbor"]} == {*files[4:]} and float(pair["similarity"]) > 0.98
    page = (out / "similar.html").read_text()
    assert page.count("this photo") == 6 and page.count("<img") == 18 and "broken" not in page

    # What is there is not computed again; a query alone is compared.
    query = f"--query={photos / '4 again.png'}"
    (out / "similar.html").unlink()
    printed(*arguments, query)
    rows = pyarrow.parquet.read_table(out / "neighbors.parquet").to_pylist()
    # It is in the folder, and not its own neighbor.
    assert [row["neighbor"] for row in rows] == [files[j] for j in np.argsort(-cosines[4])[:2]]
    (photos.parent / "other.png").write_bytes((photos / "4 again.png").read_bytes())
    printed(*arguments, f"--query={photos.parent / 'other.png'}")
    rows = pyarrow.parquet.read_table(out / "neighbors.parquet").to_pylist()
    assert [row["neighbor"] for row in rows] == [files[4], files[5]]
    assert (out / "similar.html").exists()
    error = refused(*arguments, f"--query={photos / 'broken.png'}")
    assert "broken.png cannot be read as an image" in error


def test_a_large_folder_is_indexed_where_faiss_is(folder, tmp_path, printed, monkeypatch):
    monkeypatch.setattr(nearest_neighbors, "INDEXED", 6)
    arguments = ["similar", folder / "m.keras", folder / "photos", "--count=2"]

    def found(name, *options):
        said = printed(*arguments, f"--output={tmp_path / name}", *options, stream="err")
        table = pyarrow.parquet.read_table(tmp_path / name / "neighbors.parquet")
        return table.drop(["similarity"]).to_pylist(), said

    with monkeypatch.context() as without:
        without.setitem(sys.modules, "faiss", None)
        exact, said = found("exact")
    assert "An index is quicker here: pip install 'keras-vit-16x16[similar]'" in said
    pytest.importorskip("faiss", reason="make test-runtimes installs it")
    indexed, said = found("index")
    assert indexed == exact and "The index finds 100.00 % of the 2 nearest." in said
    again, said = found("all", "--exact")
    assert again == exact and "index" not in said.replace(str(tmp_path), "")


def test_a_folder_without_photos_to_compare_is_refused(folder, tmp_path, refused):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "0.png").write_bytes((folder / "photos" / "0.png").read_bytes())
    arguments = [folder / "m.keras", tmp_path / "one", f"--output={tmp_path / 'out'}"]
    assert "Received: 1 that can be read" in refused("similar", *arguments)
