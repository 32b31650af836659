from typing import Any

import keras_vit


def tiny_vit(**arguments: Any) -> keras_vit.VisionTransformer:
    """Returns a ViT of two blocks for images of 16 pixels and 5 classes, `arguments` aside."""
    defaults = {"image_size": 16, "patch_size": 4, "hidden_size": 16, "mlp_dim": 32}
    defaults |= {"num_heads": 2, "num_layers": 2, "num_classes": 5}
    return keras_vit.VisionTransformer(**defaults | arguments)
