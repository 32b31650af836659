"""How many pixels a token stands for."""


def token_stride(model):
    """Returns the distance between neighbouring tokens, in pixels of the image.

    It is the patch size, times the stride of the ResNet of a hybrid.

    Args:
        model: a `VisionTransformer`.
    """
    resnet = model.arguments["resnet"]
    if not resnet:
        return model.arguments["patch_size"]
    # The root halves the image twice; every stage after the first halves it again.
    return model.arguments["patch_size"] * 4 * 2 ** max(len(resnet["num_layers"]) - 1, 0)
