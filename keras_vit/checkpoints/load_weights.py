"""Pre-trained weights by name or path, for transfer."""

from pathlib import Path

from keras_vit.checkpoints.download import cache_directory, download
from keras_vit.checkpoints.load import load_fitting
from keras_vit.checkpoints.registry import url_of


def find_checkpoint(name_or_path):
    """Returns the path of a checkpoint, which is downloaded first if it is a published name.

    Args:
        name_or_path: the path of an existing file or directory, or a name that
            `keras_vit.checkpoints.registry.url_of` knows.

    Raises:
        ValueError: if it is neither.
        DownloadError: if the download fails; the message names the address and
            where to put a copy.
    """
    if Path(name_or_path).exists():
        return Path(name_or_path)
    try:
        url = url_of(str(name_or_path))
    except ValueError as error:
        raise ValueError(f"There is no file {str(name_or_path)!r}. {error}") from None
    folder = str(name_or_path).rpartition("/")[0]
    return download(url, cache_directory() / folder / url.rpartition("/")[2])


def load_weights(model, name_or_path):
    """Loads pre-trained weights into a model that may have another head.

    A head of another size is left as initialised, and pre-training's hidden
    layer is dropped if the model has none. Position embeddings are resized.
    Everything else must fit, as in `load_checkpoint`.

    Args:
        model: a `VisionTransformer` or `ResNetV2`.
        name_or_path: a published name, "augreg/B_16" for example, or a path.

    Raises:
        ValueError: if it is neither.
        DownloadError: if a download fails.
        CheckpointError: if the file is damaged or does not fit; the model is
            unchanged.
    """
    load_fitting(model, find_checkpoint(name_or_path))
