"""Every spelling of the original's arrays, and of BiT's."""

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import CheckpointError, Layout
from keras_vit.checkpoints.weights_of_model import POSITION_TABLE

LAYOUTS = {
    "original": Layout(),
    "linen": Layout(renumbered=True),
    "big_vision": Layout(renumbered=True, positions="pos_embedding", class_position=False),
    "big_vision before 2022": Layout(renumbered=True, positions="Transformer/pos_embedding"),
    "scanned": Layout(
        renumbered=True, positions="pos_embedding", class_position=False, scanned=True
    ),
    "flax checkpoint": Layout(prefix="opt/target/"),
    "params": Layout(prefix="params/", renumbered=True),
    "image tower": Layout(prefix="params/img/", renumbered=True, positions="pos_embedding"),
    "4-d group norm": Layout(group_norm_rank=4),
}

HYBRID = {"resnet": {"num_layers": (1, 1), "width_factor": 0.5}, "image_size": 32, "patch_size": 1}


@pytest.fixture
def make(make_vit):
    """Returns a function that makes a small hybrid, or a pure Transformer if told so."""

    def make(seed=0, pure=False, **overrides):
        return make_vit(seed, **({} if pure else HYBRID), **overrides)

    return make


def arrays_of(path):
    with np.load(path) as file:
        return dict(file.items())


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_recognized_and_written_back(name, make, to_numpy, assert_same_weights, tmp_path):
    layout = LAYOUTS[name]
    model = make()
    if not layout.class_position:
        table = model.get_layer("position_embedding").embedding
        table.assign(to_numpy(table) * (np.arange(17) > 0)[:, None])
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", layout)
    other = make(seed=1)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    assert other.checkpoint_layout == layout
    assert_same_weights(model, other)
    keras_vit.save_checkpoint(other, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_scanned_blocks_are_stacked(make, to_numpy, tmp_path):
    model = make(pure=True)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", LAYOUTS["scanned"])
    kernel = arrays_of(tmp_path / "a.npz")["Transformer/encoderblock/MlpBlock_0/Dense_0/kernel"]
    expected = [to_numpy(block.mlp.hidden_dense.kernel) for block in model.blocks]
    np.testing.assert_array_equal(kernel, expected)


def test_scanned_tables_of_positions_are_no_single_table(make, assert_same_weights, tmp_path):
    arguments = {"pure": True, "num_layers": 1, "position_placement": "every"}
    model, other = make(**arguments), make(seed=1, **arguments)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", Layout(scanned=True))
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    assert_same_weights(model, other)


def test_class_token_absorbs_its_position(make, random_images, forward, tmp_path):
    """big_vision adds positions before it prepends the class token: the sum is the same."""
    model = make(pure=True)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz", LAYOUTS["big_vision"])
    arrays = arrays_of(tmp_path / "a.npz")
    assert arrays["pos_embedding"].shape == (1, 16, 16)
    other = make(seed=1, pure=True)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    np.testing.assert_allclose(
        forward(other, random_images()), forward(model, random_images()), atol=1e-5
    )
    # Blocks that each add the position would add it once.
    shared = make(pure=True, position_placement="shared")
    with pytest.raises(ValueError, match="class_position=True"):
        keras_vit.save_checkpoint(shared, tmp_path / "b.npz", LAYOUTS["big_vision"])
    assert not (tmp_path / "b.npz").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        {"attention": "axial", "classifier": "gap"},
        {"position_embedding": "learned_2d"},
        {"position_embedding": "relative"},
        {"position_embedding": "sincos_2d", "classifier": "gap"},
        {"position_placement": "every"},
        {"classifier": "unpooled"},
        {"classifier": "map"},
        {"num_classes": None, "register_tokens": 4},
    ],
)
def test_models_beyond_the_originals(arguments, make, assert_same_weights, tmp_path):
    model, other = make(pure=True, **arguments), make(seed=1, pure=True, **arguments)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    assert len(arrays_of(tmp_path / "a.npz")) == len(model.weights)
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    assert_same_weights(model, other)
    if arguments == {"classifier": "map"}:
        assert other.checkpoint_layout == Layout(renumbered=True, positions="pos_embedding")


def test_two_dimensional_tables_are_resized(make, to_numpy, tmp_path):
    model = make(pure=True, position_embedding="learned_2d")
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    other = make(1, pure=True, position_embedding="learned_2d", image_size=(28, 16))
    keras_vit.load_checkpoint(other, tmp_path / "a.npz")
    before, after = (m.get_layer("position_embedding") for m in (model, other))
    np.testing.assert_array_equal(to_numpy(after.columns), to_numpy(before.columns))
    np.testing.assert_allclose(to_numpy(after.rows)[::2], to_numpy(before.rows), atol=1e-7)
    with pytest.raises(CheckpointError, match=r"rows: 4 position embeddings do not fit .* 8 rows"):
        keras_vit.load_checkpoint(other, tmp_path / "a.npz", position_grid=(8, 4))


def test_bfloat16_arrays(make, to_numpy, tmp_path):
    """NumPy stores bfloat16 as two opaque bytes."""
    keras_vit.save_checkpoint(make(pure=True), tmp_path / "a.npz")
    arrays = arrays_of(tmp_path / "a.npz")
    halved = {n: (a.view(np.uint32) >> 16).astype(np.uint16).view("V2") for n, a in arrays.items()}
    np.savez(tmp_path / "b.npz", **halved)
    model = make(seed=1, pure=True)
    keras_vit.load_checkpoint(model, tmp_path / "b.npz")
    expected = (arrays["head/kernel"].view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), expected)


def test_a_stated_grid_tells_whether_a_table_has_a_class_token():
    assert Layout.detect({"head/kernel": (2, 3)}) is None
    shapes = {"cls": (1, 1, 8), POSITION_TABLE: (1, 16, 8), "Transformer/encoder_norm/scale": (8,)}
    assert Layout.detect(shapes) == Layout(class_position=False)
    assert Layout.detect(shapes, grid=(3, 5)) == Layout()


def test_counters_of_bits_names_are_ignored_and_kept(make_resnet, assert_same_weights, tmp_path):
    model, other = make_resnet(), make_resnet(seed=1)
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    counted = {
        name.replace("standardized_conv2d/", f"standardized_conv2d_{i}/"): array
        for i, (name, array) in enumerate(arrays_of(tmp_path / "a.npz").items())
    }
    np.savez(tmp_path / "b.npz", **counted)
    keras_vit.load_checkpoint(other, tmp_path / "b.npz")
    assert_same_weights(model, other)
    keras_vit.save_checkpoint(other, tmp_path / "c.npz")
    assert set(arrays_of(tmp_path / "c.npz")) == set(counted) != set(arrays_of(tmp_path / "a.npz"))


def test_another_head_of_bit(make_resnet, to_numpy, tmp_path):
    keras_vit.save_checkpoint(make_resnet(num_classes=9), tmp_path / "a.npz")
    model = make_resnet(seed=1)
    before = to_numpy(model.get_layer("head").kernel)
    keras_vit.load_checkpoint(model, tmp_path / "a.npz", skip=("head",))
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), before)
    keras_vit.load_checkpoint(make_resnet(num_classes=None), tmp_path / "a.npz", skip=("head",))
