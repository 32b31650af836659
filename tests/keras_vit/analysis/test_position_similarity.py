"""Similarities of position embeddings whose geometry is known."""

import numpy as np
import pytest

from keras_vit.analysis import position_similarity


def test_learned_embeddings_without_the_class_token(make_model, to_numpy):
    model = make_model()
    table = to_numpy(model.get_layer("position_embedding").embedding)[0]
    assert len(table) == 1 + 4 * 6
    similarity = position_similarity(model)
    assert similarity.shape == (4, 6, 4, 6)
    a, b = table[1 + 2 * 6 + 5], table[1 + 1 * 6 + 3]
    expected = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert similarity[2, 5, 1, 3] == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(np.einsum("ijij->ij", similarity), 1, atol=1e-12)
    assert np.abs(similarity).max() <= 1


def test_patches_of_one_column_share_half_of_a_two_dimensional_embedding(make_model):
    model = make_model(position_embedding="learned_2d")
    layer = model.get_layer("position_embedding")
    layer.columns.assign(np.eye(6, 8))
    layer.rows.assign(np.eye(4, 8))
    similarity = position_similarity(model)
    same_row, same_column = np.eye(4)[:, None, :, None], np.eye(6)[None, :, None, :]
    np.testing.assert_allclose(similarity, (same_row + same_column) / 2, atol=1e-6)


def test_sines_depend_on_the_offset_alone(make_model):
    similarity = position_similarity(make_model(position_embedding="sincos_2d", classifier="gap"))
    np.testing.assert_allclose(similarity[0, 0, 1, 2], similarity[2, 3, 3, 5], atol=1e-6)


def test_every_block_has_its_own_tiles(make_model):
    model = make_model(position_placement="every")
    first, last = position_similarity(model), position_similarity(model, block=2)
    assert np.abs(first - last).max() > 0.1
    shared = make_model(position_placement="shared")
    np.testing.assert_array_equal(position_similarity(shared), position_similarity(shared, block=2))


@pytest.mark.parametrize("kind", ["none", "relative"])
def test_models_without_added_positions_are_refused(make_model, kind):
    with pytest.raises(ValueError, match=f"position_embedding='{kind}'"):
        position_similarity(make_model(position_embedding=kind))


def test_an_unknown_block_is_refused(make_model):
    with pytest.raises(ValueError, match="block=3"):
        position_similarity(make_model(), block=3)
