"""The wrapper of every model and exported file: a function of images, with its interface."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.type_hints import Tensor

from ..data import Split
from ..data.preprocessing.preprocess import Preprocess
from ..data.tf_data_batches import eval_dataset
from ..errors import UsageError
from ..tasks import Task, task_of
from .interface import Interface


class ImageFunction:
    """A function from images (n, height, width, 3), as the interface says, to outputs (n, …)."""

    name: str  # of the source, for tables
    interface: Interface
    feature_name = "representation"  # which output `features` gives
    identity: str  # a digest of architecture, weights and features; equal for equal functions
    # From images to (n, height, width) in [0, 1], where it looks, if that can be followed.
    rollout: Callable[[Tensor], np.ndarray] | None = None
    # From images and a class of each to (n, height, width) in [0, 1], what speaks for the class.
    class_maps: Callable[[Tensor, Sequence[int]], np.ndarray] | None = None
    run: Mapping[str, Any] = {}  # the config of the run that trained it, if that is known

    @property
    def task(self) -> Task:
        """The task of its output, or else of its run; classification where neither is known."""
        return task_of(self.run, self.interface.classifies)

    def __call__(self, images: Tensor) -> np.ndarray:
        """Returns the outputs; raises ValueError for images or outputs of another shape."""
        raise NotImplementedError

    def features(self, images: Tensor) -> np.ndarray:
        """Returns (n, dimensions), what a linear classifier is put on; ValueError without any."""
        raise NotImplementedError

    def require_head(self) -> None:
        """Raises `ValueError` if the outputs are features."""
        if self.interface.output == "representation":
            raise ValueError(
                f"Expected a model with a head. Received: {self.name}, which gives features. The "
                "head of a checkpoint needs --num_classes."
            )

    def operations(self, split: Split, text: str) -> Preprocess:
        """Returns the operations of `text` on images of a split.

        Raises `ValueError` unless they make images in the range of the interface.
        """
        image_range = self.interface.image_range
        return split.preprocess(text).require_range("the preprocessing", split, image_range)

    def batches(self, split: Split, text: str, batch_size: int) -> tf.data.Dataset:
        """Returns one pass over a split, see `eval_dataset`, by the operations of `text`.

        Photos that cannot be read are left out, and named.
        """
        if not self.task.takes(split.dataset.kind):
            raise UsageError(
                f"Expected data of {self.task.learns or 'classes'} for {self.name}. Received: "
                f"{split.dataset.name}, of {split.dataset.kind or 'classes'} for each photo."
            )
        operations = self.operations(split, text)
        return eval_dataset(
            split, operations, batch_size=batch_size, skip_counter=split.left_out, task=self.task
        )


class RawPixels(ImageFunction):
    """The function whose features are the pixels of images of 32 x 32, for comparison."""

    name, feature_name, identity = "raw pixels", "pixels", "pixels"
    interface = Interface((32, 32), output="representation")

    def features(self, images: Tensor) -> np.ndarray:
        return np.asarray(images).reshape(len(images), -1)
