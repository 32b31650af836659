"""Low-rank adaptation, LoRA: kernels stay, small factors beside them train (Hu et al., 2021)."""

import contextlib

import keras


def adapt(model: keras.Model, rank: int, alpha: float = 0.0) -> None:
    """Adds trainable factors to the dense layers of the encoder, and freezes all but the head.

    A kernel W becomes W + alpha / rank A B, with A (inputs, rank) random and B (rank, outputs)
    zero, so that the model computes what it did until B moves. Saving the model adds A B to W.

    Args:
        model: `keras_vit.VisionTransformer`, with the weights that are adapted.
        rank: of the factors, at least 1.
        alpha: the scale times `rank`; 0 is `rank`, a scale of 1.

    Raises:
        ValueError: if the model has no blocks of an encoder.
    """
    blocks = [layer for layer in model.layers if layer.name.startswith("encoder_block_")]
    if not blocks:
        raise ValueError(f"LoRA: expected a model with an encoder. Received: {model.name}.")
    for weight in model.trainable_variables:
        weight.trainable = weight.path.startswith("head/")
    for block in blocks:
        for layer in block._flatten_layers():
            if isinstance(layer, keras.layers.Dense):
                with contextlib.ExitStack() as scopes:
                    # The paths of the factors begin as the kernel's does.
                    for name in layer.path.split("/")[:-1]:
                        scopes.enter_context(keras.name_scope(name))
                    layer.enable_lora(rank, lora_alpha=alpha or rank)
