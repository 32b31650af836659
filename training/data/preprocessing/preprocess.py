"""`Preprocess`: what a preprocessing text does to images, labels and batches, host and device."""

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

from training.data.preprocessing.operation import (
    MAX_OPERATIONS,
    Operation,
    operation_seed,
    parse,
)

# A function of an image and its seed, int64 (2,).
_Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Preprocess:
    """A parsed text, sorted by what its operations apply to; called, it processes an image.

    Attributes:
        text: the text.
        label_operations: operations on labels, in order.
        batch_operations: operations on whole batches (such as mixup), in order.
        device_operations: operations after `on_device`, for the training step to apply.
    """

    def __init__(
        self,
        text: str,
        *,
        pixel_scale: int = 1,
        upright: bool = True,
        graph_only: bool = False,
        reduced_decoding: float = 0.0,
    ):
        """Parses `text`.

        Args:
            text: operations, see `training.data.preprocessing.operation`.
            pixel_scale: factor on the pixels as they are stored.
            upright: whether `decode` turns photos as their EXIF orientation says.
            graph_only: whether `decode` keeps to operations of TensorFlow; see `Decode`.
            reduced_decoding: 0, or how many times the pixels of what it is resized to a JPEG keeps
                at least that is decoded at a fraction of its size; see `decode_reduced`.

        Raises:
            ValueError: for a malformed text, an unknown operation or wrong arguments.
        """
        self.text = text
        parsed = parse(text)
        names = [op.name for op in parsed]
        cut = names.index("on_device") if "on_device" in names else len(parsed)
        host, self.device_operations = parsed[:cut], parsed[cut + 1 :]
        self.batch_operations = [op for op in host if op.stage == "batch"]
        self.label_operations = [op for op in host if op.stage == "label"]
        operations = [op for op in host if op.stage == "image"]
        for decode in (op.apply for op in operations if op.name == "decode"):
            decode.upright = decode.upright and upright
            decode.graph_only, decode.reduced = graph_only, reduced_decoding
        begins = bool(operations) and operations[0].name == "decode"
        self._decode = operations[0].apply if begins else None
        if pixel_scale != 1:
            scale = Operation(
                "pixel_scale", lambda image: image * tf.cast(pixel_scale, image.dtype)
            )
            operations.insert(1 if begins else 0, scale)
        if any(op.random or op.stage != "image" for op in self.device_operations):
            raise ValueError(
                f"Expected only deterministic operations after on_device. Received: {text!r}."
            )
        if len(operations) > MAX_OPERATIONS:
            raise ValueError(f"Expected at most {MAX_OPERATIONS} operations. Received: {text!r}.")
        self._steps = _fused(operations)

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Applies the operations on single images.

        Args:
            image: encoded bytes (a string scalar), or uint8/float32 (height, width, channels).
            seed: integers (2,), different for every image of a run; see `operation_seed`.
        """
        seed = tf.cast(seed, tf.int64)
        for step in self._steps:
            image = step(image, seed)
        return image

    def decoded(self, image: tf.Tensor) -> tf.Tensor:
        """Returns what the first operation, `decode`, makes of a string scalar.

        The object gives the same image for this, uint8 (height, width, channels), as for the
        string, but for a JPEG of which it would decode a crop alone; see docs/data.md.

        Raises:
            ValueError: if the text does not begin with `decode`.
        """
        if not self._decode:
            raise ValueError(
                f"Expected operations that begin with decode. Received: {self.text!r}."
            )
        return self._decode(image)

    def on_device(self, images: tf.Tensor) -> tf.Tensor:
        """Applies the operations after `on_device` to a batch; the identity if there are none."""
        for op in self.device_operations:
            images = op.apply(images)
        return images


def _fused(operations: Sequence[Operation]) -> list[_Step]:
    """Returns what does the same; number i has the seed `operation_seed(seed, i)`, fused or not."""

    def apply(op, number, image, seed):
        return op.apply(image, operation_seed(seed, number)) if op.random else op.apply(image)

    steps: list[_Step] = [partial(apply, op, number) for number, op in enumerate(operations)]
    match [op.name for op in operations]:
        case ["decode", "inception_crop" | "random_resized_crop", *_]:
            (decode, crop), rest = (op.apply for op in operations[:2]), [*operations[2:]]
            flip = rest.pop(0).apply if rest and rest[0].name == "flip_lr" else None
            to_range = rest.pop(0).apply if rest and rest[0].name == "value_range" else None
            first = partial(_decode_and_crop, decode, crop, flip, to_range)
            return [first, *steps[len(steps) - len(rest) :]]
        case ["decode", "resize" | "resize_small", *_]:
            decode, resizing = operations[0].apply, operations[1].apply
            return [lambda image, seed: decode(image, size_of=resizing.size_of), *steps[1:]]
    return steps


def _decode_and_crop(decode, crop, flip, to_range, image, seed):
    """Decodes only what the crop keeps, flips it while there are fewer bytes to move, resizes it.

    The range changes on the way from bytes to floats, which costs nothing: bilinear resizing is
    symmetric and linear, to rounding.
    """
    crop_seed = operation_seed(seed, 1)
    image = decode(image, lambda shape: crop.box(shape, crop_seed), lambda _: crop.shape)
    if flip:
        image = flip(image, operation_seed(seed, 2))
    return crop.resize(image, to_range.in_one_pass if to_range else None)
