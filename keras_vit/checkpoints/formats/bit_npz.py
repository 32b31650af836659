"""The .npz files of Big Transfer."""

import re
from dataclasses import dataclass, field

import numpy as np

from keras_vit.checkpoints.formats.file_array import FileArray

# Some files keep the counters that TensorFlow appended to its modules' names.
COUNTER = re.compile(r"(standardized_conv2d|group_norm|conv2d)_\d+")

ALIASES = {"head": ("resnet/head",)}


@dataclass(frozen=True)
class BiTLayout:
    """The arrays of a BiT file.

    Attributes:
        spelled: dict of published names without counters to the file's own.
    """

    spelled: dict = field(default_factory=dict)

    @classmethod
    def detect(cls, shapes, grid=None):
        """Returns the layout of a file, or None if it is not one of BiT's."""
        if not any(name.startswith("resnet/") for name in shapes):
            return None
        return cls({COUNTER.sub(r"\1", name): name for name in shapes})

    def owns(self, name):
        """Returns whether an array of the file belongs to the model: always."""
        return True

    def file_arrays(self, weights):
        """Returns the `FileArray`s that a file of this layout holds for a model."""
        return [FileArray(self.spelled.get(w.name, w.name), w.shape, (w,)) for w in weights]

    def pack(self, array, weights):
        """Returns the value of one array of the file, float32."""
        return np.reshape(array.weights[0].value(), array.shape)
