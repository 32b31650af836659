"""Numbers of the original implementations, from checkpoint to logits and back."""

import json
from pathlib import Path

import numpy as np
import pytest

import keras_vit

GOLDEN = Path(__file__).parents[1] / "golden"
FORMATS = {
    name: case["format"]
    for file in ("logits.json", "published.json", "layouts.json")
    for name, case in json.loads((GOLDEN / file).read_text()).items()
}
# FlexiViT's are for patches of another size than the file's.
FLEXIBLE = ("flexivit", "flexivit_large")
NPZ = [n for n, kind in FORMATS.items() if kind.endswith("npz") and n not in FLEXIBLE]


@pytest.mark.parametrize("name", FORMATS)
def test_logits_are_the_references(
    name, cases, build_case, write_case, load_case, tmp_path, assert_logits
):
    case = cases[name]
    model = build_case(case)
    load_case(model, case, write_case(case, tmp_path), flexible=name in FLEXIBLE)
    assert_logits(model, case)


@pytest.mark.parametrize("name", NPZ)
def test_npz_is_written_back_bit_for_bit(name, cases, golden, build_case, write_case, tmp_path):
    case = cases[name]
    model = build_case(case)
    keras_vit.load_checkpoint(model, write_case(case, tmp_path))
    keras_vit.save_checkpoint(model, tmp_path / "back.npz")
    written = np.load(tmp_path / "back.npz")
    # Of SigLIP's two towers that of images.
    text = "params/t"
    expected = {n: a for n, a in golden.checkpoint(case).items() if not n.startswith(text)}
    assert set(written.files) == set(expected)
    for array, value in expected.items():
        assert written[array].dtype == value.dtype == np.float32
        assert written[array].shape == value.shape
        assert written[array].tobytes() == value.tobytes()
