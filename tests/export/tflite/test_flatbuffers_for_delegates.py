import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from keras_vit import export
from keras_vit.export.errors import ExportError
from keras_vit.export.tflite.flatbuffer import pack
from keras_vit.export.tflite.flatbuffers_for_delegates import (
    delegate_faults,
    equalize_ranks,
    fold_constants,
)
from keras_vit.export.verification.tflite_files import open_gpu
from tests.export.conftest import run
from tests.export.tflite import tiny_graph

PLANTED = {
    "add_of_unequal_ranks": "ADD 'logits': an operand of a lower rank",
    "padded_maximum": "MAX_POOL_2D 'logits': padding before it",
    "five_dimensions": "RESHAPE 'logits': more than 4 dimensions",
    "shrinking_slice": "STRIDED_SLICE 'logits': shrink_axis_mask",
    "constant_left": "BATCH_MATMUL 'logits': a constant left operand",
    "slice_of_a_constant": "STRIDED_SLICE 'logits': the result, always the same",
    "symmetric_padding": "MIRROR_PAD 'logits': only reflection",
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name):
    faults = delegate_faults(getattr(tiny_graph, name)().finished())
    assert any(fault.startswith(PLANTED[name]) for fault in faults), faults


@pytest.mark.parametrize("name", ["add_of_unequal_ranks", "padded_maximum", "slice_of_a_constant"])
def test_what_is_found_is_wrong_on_a_gpu(gpu, name, tmp_path):
    file = getattr(tiny_graph, name)().write(tmp_path / "m.tflite")
    shape = Interpreter(str(file)).get_input_details()[0]["shape"]
    # Below zero, so that padding with zeros is the maximum wherever it is looked at.
    image = -np.random.default_rng(0).uniform(1, 2, shape).astype("float32")
    expected = run(file, image)
    outputs, delegation = open_gpu(file).run(image)
    assert np.abs(outputs - expected).max() > 0.1 * np.abs(expected).max()
    # Without a word: nothing falls back to the processor.
    assert delegation.complete and delegation.fallbacks == ()


@pytest.mark.parametrize(
    ("mend", "graph", "shape"),
    [
        (equalize_ranks, tiny_graph.add_of_unequal_ranks(), (1, 1, 17, 8)),
        (fold_constants, tiny_graph.slice_of_a_constant(), (1, 2, 3, 8)),
    ],
)
def test_mending_leaves_nothing_to_find_and_the_same_bits(mend, graph, shape, tmp_path):
    before, after = graph.write(tmp_path / "before.tflite"), tmp_path / "after.tflite"
    tree = graph.finished()
    mend(tree)
    assert delegate_faults(tree) == []
    after.write_bytes(pack(tree))
    image = np.random.default_rng(0).normal(0, 1, shape).astype("float32")
    np.testing.assert_array_equal(run(after, image), run(before, image))


def test_a_constant_is_not_kept_beside_its_part():
    tree = tiny_graph.slice_of_a_constant().finished()
    fold_constants(tree)
    sizes = [len(buffer.data) for buffer in tree.buffers if buffer.data is not None]
    assert 4 * 2 * 8 * 5 in sizes and 4 * 2 * 8 * 7 not in sizes


def test_an_export_that_delegates_compute_wrong_fails(make_vit, monkeypatch, tmp_path):
    monkeypatch.setattr("keras_vit.export.tflite.to_tflite.equalize_ranks", lambda tree: None)
    with pytest.raises(ExportError, match=r"every delegate computes right.*ADD"):
        export.to_tflite(make_vit(num_layers=1), tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []


def test_layers_of_others_are_warned_of(make_vit, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr("keras_vit.export.tflite.to_tflite.delegate_faults", lambda *_: ["a fault"])
    model = keras.Sequential([make_vit(num_layers=1, num_classes=None), keras.layers.Dense(3)])
    file = export.to_tflite(model, tmp_path / "m.tflite")
    assert file.exists() and "will not compute all of this file right: a fault" in caplog.text
