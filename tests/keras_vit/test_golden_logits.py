import json

import numpy as np
import pytest

import keras_vit
from tests.conftest import GOLDEN
from tests.keras_vit.small import assert_logits

FILES = [GOLDEN / f"{name}.json" for name in ("logits", "published", "layouts")]
NAMES = [name for file in FILES for name in json.loads(file.read_text())]
# FlexiViT's are for patches of another size than the file's.
FLEXIBLE = ("flexivit", "flexivit_large")


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_npz_are_exact(name, cases, golden, build_case, write_case, load_case, tmp_path):
    case = cases[name]
    model = build_case(case)
    load_case(model, case, write_case(case, tmp_path), flexible=name in FLEXIBLE)
    assert_logits(model, case)
    if name in FLEXIBLE or not case["format"].endswith("npz"):
        return
    keras_vit.save_checkpoint(model, tmp_path / "back.npz")
    written = np.load(tmp_path / "back.npz")
    # Of SigLIP's two towers that of images.
    expected = {n: a for n, a in golden.checkpoint(case).items() if not n.startswith("params/t")}
    assert set(written.files) == set(expected)
    for array, value in expected.items():
        assert written[array].dtype == value.dtype == np.float32
        assert written[array].shape == value.shape
        assert written[array].tobytes() == value.tobytes()
