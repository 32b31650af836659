"""`Preprocess`: what a preprocessing text does to images, labels and batches, host and device."""

import tensorflow as tf

from training.data.preprocessing.fused_decode_and_crop import fuse
from training.data.preprocessing.operation import MAX_OPERATIONS, Operation
from training.data.preprocessing.operations.decoding import Decode
from training.data.preprocessing.parser import parse
from training.data.preprocessing.pixel_limit import within_pixel_limit


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
            text: operations, see `training.data.preprocessing.parser`.
            pixel_scale: factor on the pixels as they are stored.
            upright: whether `decode` turns photos as their EXIF orientation says.
            graph_only: whether `decode` keeps to operations of TensorFlow; see `Decode`.
            reduced_decoding: 0, or how many times the pixels of what it is resized to a JPEG keeps
                at least that is decoded at a fraction of its size.

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
        for op in operations:
            if isinstance(op.apply, Decode):
                op.apply.upright = op.apply.upright and upright
                op.apply.graph_only = graph_only
                op.apply.reduced = reduced_decoding
        if pixel_scale != 1:
            position = 1 if operations and operations[0].name == "decode" else 0
            operations.insert(position, Operation("pixel_scale", _scale(pixel_scale)))
        if any(op.random or op.stage != "image" for op in self.device_operations):
            raise ValueError(
                f"Expected only deterministic operations after on_device. Received: {text!r}."
            )
        if len(operations) > MAX_OPERATIONS:
            raise ValueError(f"Expected at most {MAX_OPERATIONS} operations. Received: {text!r}.")
        self._steps = fuse(operations)
        first = operations[0].apply if operations else None
        self._decode = first if isinstance(first, Decode) else None

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Applies the operations on single images.

        Args:
            image: encoded bytes (a string scalar), or uint8/float32 (height, width, channels).
            seed: integers (2,), different for every image of a run; see `operation_seed`.
        """
        seed = tf.cast(seed, tf.int64)
        if image.dtype == tf.string:
            image = within_pixel_limit(image)
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
        return self._decode(within_pixel_limit(image))

    def on_device(self, images: tf.Tensor) -> tf.Tensor:
        """Applies the operations after `on_device` to a batch; the identity if there are none."""
        for op in self.device_operations:
            images = op.apply(images)
        return images


def _scale(factor):
    return lambda image: image * tf.cast(factor, image.dtype)
