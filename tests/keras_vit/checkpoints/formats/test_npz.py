import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, Layout
from keras_vit.checkpoints.weights_of_model import POSITION_TABLE
from tests.keras_vit.small import assert_same, forward, make_images, make_resnet, make_vit, to_numpy

BIG_VISION = {"renumbered": True, "positions": "pos_embedding"}
LAYOUTS = {
    "original": Layout(),
    "linen": Layout(renumbered=True),
    "big_vision": Layout(**BIG_VISION, class_position=False),
    "big_vision before 2022": Layout(renumbered=True, positions="Transformer/pos_embedding"),
    "scanned": Layout(**BIG_VISION, class_position=False, scanned=True),
    "flax checkpoint": Layout(prefix="opt/target/"),
    "params": Layout(prefix="params/", renumbered=True),
    "image tower": Layout(prefix="params/img/", **BIG_VISION),
    "4-d group norm": Layout(group_norm_rank=4),
}

HYBRID = {"resnet": {"num_layers": (1, 1), "width_factor": 0.5}, "image_size": 32, "patch_size": 1}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_recognized_and_written_back(name, tmp_path):
    layout = LAYOUTS[name]
    model = make_vit(**HYBRID)
    if not layout.class_position:
        table = model.get_layer("position_embedding").embedding
        table.assign(to_numpy(table) * (np.arange(17) > 0)[:, None])
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", layout)
    other = make_vit(1, **HYBRID)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    assert other.checkpoint_layout == layout
    assert_same(model, other)
    keras_vit.save_checkpoint(other, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("num_layers", [1, 2])
def test_scanned_blocks_are_stacked_and_their_tables_of_positions(num_layers, tmp_path):
    arguments = {"num_layers": num_layers, "position_placement": "every"}
    model, other = make_vit(**arguments), make_vit(1, **arguments)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", Layout(renumbered=True, scanned=True))
    kernel = np.load(tmp_path / "a.npz")["Transformer/encoderblock/MlpBlock_0/Dense_0/kernel"]
    expected = [to_numpy(block.mlp.hidden_dense.kernel) for block in model.blocks]
    np.testing.assert_array_equal(kernel, expected)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    assert_same(model, other)


def test_class_token_absorbs_its_position(tmp_path):
    """big_vision adds positions before it prepends the class token: the sum is the same."""
    model = make_vit()
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", LAYOUTS["big_vision"])
    assert np.load(tmp_path / "a.npz")["pos_embedding"].shape == (1, 16, 16)
    other = make_vit(1)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    logits = (forward(each, make_images()) for each in (other, model))
    np.testing.assert_allclose(*logits, atol=1e-5)
    # Blocks that each add the position would add it once.
    shared = make_vit(position_placement="shared")
    with pytest.raises(ValueError, match="class_position=True"):
        keras_vit.save_checkpoint(shared, tmp_path / "b.npz", LAYOUTS["big_vision"])
    assert not (tmp_path / "b.npz").exists()


@pytest.mark.rows(
    {"attention": "axial", "classifier": "gap"},
    {"position_embedding": "learned_2d"},
    {"position_embedding": "relative"},
    {"position_embedding": "sincos_2d", "classifier": "gap"},
    {"position_placement": "every"},
    {"classifier": "unpooled"},
    {"classifier": "map"},
    {"num_classes": None, "register_tokens": 4},
)
def test_models_beyond_the_originals(arguments, tmp_path):
    model, other = make_vit(**arguments), make_vit(1, **arguments)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert len(np.load(tmp_path / "a.npz")) == len(model.weights)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    assert_same(model, other)
    if arguments == {"classifier": "map"}:
        assert other.checkpoint_layout == Layout(renumbered=True, positions="pos_embedding")


def test_two_dimensional_tables_are_resized(tmp_path):
    model = make_vit(position_embedding="learned_2d")
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    other = make_vit(1, position_embedding="learned_2d", image_size=(28, 16))
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    before, after = (m.get_layer("position_embedding") for m in (model, other))
    np.testing.assert_array_equal(to_numpy(after.columns), to_numpy(before.columns))
    np.testing.assert_allclose(to_numpy(after.rows)[::2], to_numpy(before.rows), atol=1e-7)
    with pytest.raises(CheckpointError, match=r"rows: 4 position embeddings do not fit .* 8 rows"):
        keras_vit.load_checkpoint(other, tmp_path / "a.npz", position_grid=(8, 4))


def test_bfloat16_arrays(saved, tmp_path):
    """NumPy stores bfloat16 as two opaque bytes."""
    arrays, model = np.load(saved), make_vit(1, representation_size=12)
    halved = {n: (a.view(np.uint32) >> 16).astype(np.uint16).view("V2") for n, a in arrays.items()}
    np.savez(tmp_path / "b.npz", **halved)
    keras_vit.load_checkpoint(model, tmp_path / "b.npz")
    expected = (arrays["head/kernel"].view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), expected)


@pytest.mark.parametrize("stored", [np.asfortranarray, lambda a: a.astype(">f4")])
def test_other_orders_in_memory_are_the_same_arrays(stored, saved, tmp_path):
    arrays, model = np.load(saved), make_vit(1, representation_size=12)
    np.savez(tmp_path / "b.npz", **{name: stored(array) for name, array in arrays.items()})
    keras_vit.load_checkpoint(model, tmp_path / "b.npz")
    assert_same(model, make_vit(representation_size=12))


def test_a_stated_grid_tells_whether_a_table_has_a_class_token():
    assert Layout().detect({"head/kernel": (2, 3)}) is None
    shapes = {"cls": (1, 1, 8), POSITION_TABLE: (1, 16, 8), "Transformer/encoder_norm/scale": (8,)}
    assert Layout().detect(shapes) == Layout(class_position=False)
    assert Layout().detect(shapes, grid=(3, 5)) == Layout()


def test_counters_of_bits_names_are_ignored_and_kept_and_its_head_is_skipped(tmp_path):
    model, other = make_resnet(), make_resnet(seed=1)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    counted, plain = {}, "standardized_conv2d/"
    for i, (name, array) in enumerate(np.load(tmp_path / "a.npz").items()):
        counted[name.replace(plain, f"{plain[:-1]}_{i}/")] = array
    np.savez(tmp_path / "b.npz", **counted)
    keras_vit.load_checkpoint(other, tmp_path / "b.npz")
    assert_same(model, other)
    keras_vit.save_checkpoint(other, tmp_path / "c.npz")
    assert set(np.load(tmp_path / "c.npz")) == set(counted) != set(np.load(tmp_path / "a.npz"))
    for num_classes in (9, None):
        other = make_resnet(seed=1, num_classes=num_classes)
        before = other.get_weights()
        keras_vit.load_checkpoint(other, tmp_path / "a.npz", skip=("head",))
        head = [weight.path.startswith("head") for weight in other.weights]
        kept = [np.array_equal(*pair) for pair in zip(before, other.get_weights(), strict=True)]
        assert kept == head
