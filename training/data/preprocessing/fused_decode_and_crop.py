"""Fusion: `decode`, a crop and the flip and range after it as one operation.

Of a JPEG, it decodes only what the crop keeps. It flips before the crop is resized, while there
are fewer bytes to move, and changes the range on the way from bytes to floats, which costs
nothing: bilinear resizing is symmetric and linear, to rounding. `decode` and a resize are one
step if JPEGs may be decoded at a fraction of their size.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from training.data.preprocessing.operation import Operation, operation_seed
from training.data.preprocessing.operations.cropping import RandomResizedCrop
from training.data.preprocessing.operations.decoding import Decode
from training.data.preprocessing.operations.flips_and_shifts import FlipLeftRight
from training.data.preprocessing.operations.pixel_values import ValueRange
from training.data.preprocessing.operations.resizing import Resizing

# A function of an image and the image's seed, int64 (2,).
Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def fuse(operations: Sequence[Operation]) -> list[Step]:
    """Returns the steps that do what `operations` on single images do, in order.

    Operation number i has the seed `operation_seed(seed, i)`, fused or not.
    """
    steps: list[Step] = [_Single(number, op) for number, op in enumerate(operations)]
    match [op.apply for op in operations]:
        case [Decode() as decode, RandomResizedCrop() as crop, *rest]:
            flip: Any = rest.pop(0) if rest and isinstance(rest[0], FlipLeftRight) else None
            to_range: Any = rest.pop(0) if rest and isinstance(rest[0], ValueRange) else None
            return [_DecodeAndCrop(decode, crop, flip, to_range), *steps[len(steps) - len(rest) :]]
        case [Decode(reduced=least) as decode, Resizing(size_of=size_of), *_] if least:
            return [lambda image, seed: decode(image, size_of), *steps[1:]]
    return steps


@dataclasses.dataclass(frozen=True)
class _Single:
    """One operation, with its number in the text."""

    number: int
    operation: Operation

    def __call__(self, image, seed):
        if self.operation.random:
            return self.operation.apply(image, operation_seed(seed, self.number))
        return self.operation.apply(image)


@dataclasses.dataclass(frozen=True)
class _DecodeAndCrop:
    """The operations 0 to 3 of a text, of which the last two may be missing."""

    decode: Decode
    crop: RandomResizedCrop
    flip: FlipLeftRight | None
    to_range: ValueRange | None

    def __call__(self, image, seed):
        image = self._decoded_crop(image, operation_seed(seed, 1))
        if self.flip:
            image = self.flip(image, operation_seed(seed, 2))
        return self.crop.resize(image, self.to_range.in_one_pass if self.to_range else None)

    def _decoded_crop(self, image, seed):
        if image.dtype != tf.string:
            return self.crop.cut(image, seed)

        def of_jpeg():
            box = self.crop.box(tf.io.extract_jpeg_shape(image), seed)
            return self.decode.jpeg_window(image, box, self.crop.shape)

        # What a branch not taken holds still costs time, so this one knows that it has no JPEG.
        return tf.cond(
            self.decode.is_upright_jpeg(image),
            of_jpeg,
            lambda: self.crop.cut(self.decode.other_than_upright_jpeg(image), seed),
        )
