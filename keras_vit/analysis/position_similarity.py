"""Similarity of the position embeddings of patches (Figure 7 center)."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.position_tables_2d import POSITION_EMBEDDINGS
from keras_vit.models.image_model import ImageModel, require_kind


def position_similarity(model: keras.Model, block: int = 0) -> np.ndarray:
    """Compares the position embedding of every patch with that of every other.

    Args:
        model: a `keras_vit.VisionTransformer` whose positions are added to tokens.
        block: int, which block's embedding to take where every block has its own.

    Returns:
        (rows, columns, rows, columns) float64 array of cosines in [-1, 1]: tile
        [i, j] of the figure is the grid of similarities to the patch in row i
        and column j. The class token is left out.

    Raises:
        ValueError: if the model adds no position embedding, or has no such block.
    """
    require_kind(model, ImageModel, "a model of keras_vit")
    arguments = model.arguments
    if arguments.get("position_embedding") not in POSITION_EMBEDDINGS:
        raise ValueError(
            "Expected a model that adds an embedding of each position to its tokens, one of "
            f"{', '.join(POSITION_EMBEDDINGS)}. "
            f"Received: position_embedding={arguments.get('position_embedding')!r}"
        )
    if not 0 <= block < arguments["num_layers"]:
        raise ValueError(
            f"`block` must lie in [0, {arguments['num_layers']}). Received: block={block}"
        )
    own = arguments["position_placement"] == "every"
    layer = model.get_layer(f"position_embedding_{block:02d}" if own else "position_embedding")
    table = ops.convert_to_numpy(layer.table())[0].astype("float64")
    rows, columns = model.grid_size
    patches = table[len(table) - rows * columns :]
    patches = patches / np.linalg.norm(patches, axis=1, keepdims=True)
    return (patches @ patches.T).clip(-1, 1).reshape(rows, columns, rows, columns)
