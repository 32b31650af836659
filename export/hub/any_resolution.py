"""All intermediate results of a Vision Transformer on images of every size."""

import types

import keras


def any_resolution_graph(model):
    """Returns what `model` offers for analysis, with tensors for images of every size.

    Args:
        model: a `keras_vit.VisionTransformer` that `any_resolution` accepts.

    Returns:
        A namespace with `input`, `endpoints`, `arguments`, `blocks` and
        `block_inputs()`, as the model has them, on the model's own weights.
    """
    images = keras.Input((None, None, 3), dtype="float32", name="images")
    graph = model._graph.reconnect(images)
    return types.SimpleNamespace(
        input=images,
        endpoints=graph.endpoints(),
        arguments=model.arguments,
        blocks=graph.blocks,
        block_inputs=lambda: graph.block_inputs,
    )
