"""Image sizes as users write them."""


def as_height_width(image_size):
    """Returns (height, width) in pixels from an int or a pair.

    Raises:
        ValueError: if it is neither a positive int nor a pair of them.
    """
    pair = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(pair) != 2 or not all(isinstance(size, int) and size > 0 for size in pair):
        raise ValueError(
            "`image_size` must be a positive int or a (height, width) pair of them, in pixels. "
            f"Received: image_size={image_size!r}"
        )
    return pair
