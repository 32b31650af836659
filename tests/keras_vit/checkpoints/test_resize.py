import numpy as np
import pytest

from keras_vit.checkpoints import CheckpointError
from keras_vit.checkpoints.resize import grid_of_table, resize_grid, resize_line, resize_table


def resized(grid, rows, columns):
    """`resize_grid` of a grid of single channels."""
    return resize_grid(np.asarray(grid, "float32")[..., None], rows, columns)[..., 0]


def test_two_by_two_to_three_by_three():
    expected = [[1, 1.5, 2], [2, 2.75, 3.5], [3, 4, 5]]
    np.testing.assert_array_equal(resized([[1, 2], [3, 5]], 3, 3), expected)


def test_two_by_two_to_four_by_four():
    expected = [1.6666666, 2.1111112, 2.5555556, 3]
    np.testing.assert_allclose(resized([[1, 2], [3, 5]], 4, 4)[1], expected, rtol=1e-7)


def test_shrinking_samples_without_averaging():
    grid = np.arange(16).reshape(4, 4)
    np.testing.assert_array_equal(resized(grid, 2, 2), [[0, 3], [12, 15]])


def test_from_224_to_384_pixels():
    result = resized(np.arange(196).reshape(14, 14), 24, 24)
    np.testing.assert_allclose(result[0, 1], 0.5652174, rtol=1e-7)
    np.testing.assert_allclose(result[1, 0], 7.9130435, rtol=1e-7)
    np.testing.assert_allclose(result[11, 12], 93.82609, rtol=1e-7)
    assert result[23, 23] == 195
    assert abs(result.astype("float64").sum() - 56160) < 1e-2


@pytest.mark.parametrize("source", [16, 24, 28, 32])
def test_no_edge_is_lost_to_rounding(source):
    for target in range(1, 65):
        result = resized(np.ones((source, source)), target, target)
        np.testing.assert_array_equal(result, np.ones((target, target)))


@pytest.mark.parametrize("source", [7, 12, 14])
def test_scipys_zoom_where_that_is_right(source):
    from scipy.ndimage import zoom

    grid = np.random.default_rng(0).standard_normal((source, source, 3)).astype("float32")
    for target in (2, 7, 10, 24, 37):
        expected = zoom(grid, (target / source, target / source, 1), order=1)
        np.testing.assert_allclose(resize_grid(grid, target, target), expected, atol=5e-7)


@pytest.mark.parametrize(("source", "target"), [((2, 5), (7, 3)), ((14, 14), (18, 32))])
def test_a_plane_stays_a_plane(source, target):
    """Bilinear interpolation with aligned corners reproduces a + b r + c k, any grid."""

    def plane(rows, columns):
        r, k = np.meshgrid(np.linspace(0, 1, rows), np.linspace(0, 1, columns), indexing="ij")
        return (1 + 2 * r - 3 * k).astype("float32")

    np.testing.assert_allclose(resized(plane(*source), *target), plane(*target), atol=1e-6)


def test_a_single_row_takes_the_first():
    np.testing.assert_array_equal(resized([[1, 2], [3, 5]], 1, 2), [[1, 2]])
    np.testing.assert_array_equal(resized([[7]], 2, 3), np.full((2, 3), 7))


def test_line():
    np.testing.assert_allclose(resize_line(np.array([0.0, 10.0]), 5), [0, 2.5, 5, 7.5, 10])


def test_same_size_is_the_same_bits():
    grid = np.random.default_rng(0).standard_normal((7, 9, 4)).astype("float32")
    assert resize_grid(grid, 7, 9).tobytes() == grid.tobytes()


@pytest.mark.parametrize(
    ("entries", "class_token", "grid_size", "stated", "expected"),
    [
        (197, True, (24, 24), None, (14, 14, 1)),
        (196, False, (24, 24), None, (14, 14, 0)),
        (196, True, (24, 24), None, (14, 14, 0)),
        (197, False, (24, 24), None, (14, 14, 1)),
        # 18 x 32 has as many cells as 24 x 24: a published table is the square one.
        (577, True, (18, 32), None, (24, 24, 1)),
        (577, True, (18, 32), (18, 32), (18, 32, 1)),
        # And 14 x 14 without a class token is 13 x 15 with one.
        (196, True, (13, 15), None, (14, 14, 0)),
        (7, True, (2, 3), None, (2, 3, 1)),
        (6, False, (2, 3), None, (2, 3, 0)),
        (13, True, (5, 5), (3, 4), (3, 4, 1)),
        (2, True, (5, 5), None, (1, 1, 1)),
    ],
)
def test_grid_of_a_table(entries, class_token, grid_size, stated, expected):
    assert grid_of_table(entries, class_token, grid_size, stated) == expected


@pytest.mark.parametrize("entries", [0, 13, 195])
def test_a_table_without_grid(entries):
    with pytest.raises(CheckpointError, match="position_grid"):
        grid_of_table(entries, True, (14, 14))


def test_a_table_of_another_grid_than_stated():
    with pytest.raises(CheckpointError, match="3 rows and 3 columns"):
        grid_of_table(197, True, (14, 14), (3, 3))


def test_the_class_tokens_entry_stays_apart():
    table = np.random.default_rng(0).standard_normal((1, 5, 2)).astype("float32")
    with_token = resize_table(table, True, (3, 4))
    without = resize_table(table, False, (3, 4))
    assert with_token.shape == (1, 13, 2)
    np.testing.assert_array_equal(with_token[0, 0], table[0, 0])
    np.testing.assert_array_equal(with_token[:, 1:], without)
    np.testing.assert_array_equal(
        resize_table(table[:, 1:], True, (3, 4)),
        np.concatenate([np.zeros((1, 1, 2)), without], 1),
    )
