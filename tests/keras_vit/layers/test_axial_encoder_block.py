import numpy as np

from keras_vit.layers import AxialEncoderBlock


def test_rows_then_columns(to_numpy):
    """Each half of the block sees one line of the grid at a time."""
    rng = np.random.default_rng(0)
    block = AxialEncoderBlock((2, 3), num_heads=2, mlp_dim=8)
    tokens = rng.standard_normal((4, 6, 4)).astype("float32")
    block.build(tokens.shape)
    for weight in block.weights:
        weight.assign(rng.standard_normal(weight.shape))
    grid = tokens.reshape(4, 2, 3, 4)
    rows = np.stack([to_numpy(block.row(grid[:, r])) for r in range(2)], 1)
    columns = np.stack([to_numpy(block.column(rows[:, :, c])) for c in range(3)], 2)
    result = to_numpy(block(tokens))
    np.testing.assert_allclose(result, columns.reshape(4, 6, 4), atol=1e-4)
