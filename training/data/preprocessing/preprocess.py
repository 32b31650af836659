"""`Preprocess`: applies a preprocessing text to examples, on the host, and on the device."""

import contextlib
import logging
import pathlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import first_line
from ..traced_functions import as_it_stands
from .parse_operations import MAX_OPERATIONS, Example, Operation, operation_seed, parse

# Operations that round pixels to bytes.
_TO_BYTES = dict.fromkeys(
    ("to_uint8", "randaugment", "photometric"), lambda pixels: np.clip(np.round(pixels), 0, 255)
)
# Stages of the operations that images pass through.
_ON_IMAGES = ("image", "geometry", "example")
# How many images are tried until one can be read, and what those raise that cannot.
_TRIED = 100
_UNREADABLE = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, ValueError)
logger = logging.getLogger("keras_vit")


class Preprocess:
    """A parsed text, sorted by what its operations apply to; called, it processes an image.

    Attributes:
        batch_operations: those on whole batches, such as mixup.
        device_operations: operations that are left to the training step.
        random: names of those that draw at random.
        on_images_alone: whether no operation changes another part of an example than maps.
    """

    def __init__(
        self,
        text: str,
        *,
        pixel_scale: int = 1,
        upright: bool = True,
        graph_only: bool = False,
        reduced_decoding: float = 0.0,
        divided: bool = False,
    ):
        """Parses `text`, see `training.data.preprocessing.parse_operations`; errors as `parse`.

        `pixel_scale` is a factor on the pixels as they are stored. `upright`, `graph_only` and
        `reduced_decoding` are those of `Decode`. `divided` leaves what follows `on_device` to the
        training step, which applies `on_device` to its batches; else it is part of the call.
        """
        self.text = text
        parsed = parse(text)
        names = [op.name for op in parsed]
        # Such an operation may set the range.
        self._own = any(op.own for op in parsed if op.stage in _ON_IMAGES)
        known = [op for op in parsed if op.name in ("value_range", *_TO_BYTES)]
        self._ranges = [_TO_BYTES.get(op.name, op.apply) for op in known]
        cut = names.index("on_device") if "on_device" in names else len(parsed)
        after = parsed[cut + 1 :]
        host = parsed[:cut] + ([] if divided else after)
        self.device_operations = after if divided else []
        self.batch_operations = [op for op in host if op.stage == "batch"]
        operations = [op for op in host if op.stage in _ON_IMAGES]
        for decode in (op.apply for op in operations if op.name == "decode"):
            decode.upright = decode.upright and upright
            decode.graph_only, decode.reduced = graph_only, reduced_decoding
        begins = bool(operations) and operations[0].name == "decode"
        self._decode = operations[0].apply if begins else None
        if pixel_scale != 1:
            scale = Operation("pixel_scale", lambda image: image * pixel_scale)
            operations.insert(1 if begins else 0, scale)
        received = f"Received: {text!r}."
        if any(op.name != "value_range" for op in after):
            raise ValueError(f"Expected only value_range after on_device. {received}")
        if len(operations) > MAX_OPERATIONS:
            raise ValueError(f"Expected at most {MAX_OPERATIONS} operations. {received}")
        # A JPEG is decoded at a fraction of its size where an image is resized to less next.
        self._size_of = getattr(operations[1].apply, "size_of", None) if operations[1:] else None
        numbered = [op._replace(number=number) for number, op in enumerate(operations)]
        self.random = [op.name for op in operations if op.random]
        on_labels = [op for op in host if op.stage == "label"]
        self.on_images_alone = not on_labels and all(op.stage != "example" for op in operations)
        self._steps = [*_fused(numbered), *on_labels]

    def example(self, example: Example, seed: tf.Tensor) -> Example:
        """Applies the operations on single examples, with the same draw for all parts of one.

        Args:
            example: `{"image": as below, …}`, tensors; maps of classes are integers of rank 3.
            seed: integers (2,), different for every image of a run; see `operation_seed`.
        """
        seed, example = tf.cast(seed, tf.int64), dict(example)
        for key, value in example.items():
            if key != "image" and value.shape.rank == 3 and value.dtype.is_integer:
                example[key] = tf.cast(value, tf.int32)
        for step in self._steps:
            example = step(example, seed)
        return example

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Applies them to an image alone, as `example`.

        `image` are encoded bytes (a string scalar), or uint8/float32 (height, width, channels).
        """
        return self.example({"image": image}, seed)["image"]

    def decoded(self, image: tf.Tensor) -> tf.Tensor:
        """Returns what the first operation, `decode`, makes of a string scalar: uint8 pixels.

        Raises `ValueError` if the text does not begin with it. Called on the pixels, the object
        gives what it gives for the string, but for a crop of a JPEG; see docs/data.md. With
        `reduced_decoding`, the whole image has so many times the rows and columns of the crop.
        """
        if not self._decode:
            received = f"Received: {self.text!r}."
            raise ValueError(f"Expected operations that begin with decode. {received}")
        return self._decode(image, size_of=self._size_of)

    def require_fit(self, key: str, split: Any, shape: Sequence[int | None]) -> None:
        """Raises `ValueError` unless images of `config.<key>` get the shape and range of a model's.

        Other arguments as `require_range`.
        """
        if not self._decode and not self._own:
            received = f"Received: {self.text!r}."
            raise ValueError(f"Expected config.{key} to begin with decode. {received}")
        process = as_it_stands(lambda encoded: self(encoded, tf.constant([0, 0])))
        found = tf.data.Dataset.from_tensors("").map(process).element_spec.shape
        if not found.is_fully_defined():
            raise ValueError(
                f"Expected config.{key} to end with images of one size. Received: {self.text!r}, "
                f"which leaves the shape {tuple(found)}: add a resize or a crop."
            )
        if not found.is_compatible_with(shape):
            raise ValueError(
                f"Expected config.{key} to end with images of {tuple(shape)}, as the model takes. "
                f"Received: {self.text!r}, which makes {tuple(found)}. Configs set both by size=, "
                "as in own_photos:FOLDER,size=32."
            )
        self.require_range(f"config.{key}", split)

    def require_range(
        self, what: str, split: Any = None, image_range: tuple[float, float] = (-1.0, 1.0)
    ) -> "Preprocess":
        """Returns itself; raises `ValueError` unless it maps pixels to a model's range, once.

        With a user's own operations it checks the values of the first image of `split` that can be
        read, and warns of those that lie in a small part of the range.
        """
        values = np.arange(256, dtype="float32")
        for map_range in self._ranges:
            values = map_range(values)
        rounded = len(np.unique(values)) < len(values)
        low, high = float(values[0]), float(values[-1])
        if self._own:
            values = self._first_readable(split)
            if values is None:
                return self
            low, high = float(np.min(values)), float(np.max(values))
        least, most = image_range
        # Noise, for example, goes beyond the range a little.
        slack = (most - least) / 8
        within = self._own and low >= least - slack and high <= most + slack
        fits = (round(low, 6), round(high, 6)) == (least, most) and not rounded
        if not within and not fits:
            after = " after which it rounds them to bytes," if rounded else ""
            raise ValueError(
                f"Expected {what} to map pixels to [{least:g}, {most:g}], by one value_range("
                f"{least:g}, {most:g}). Received: {self.text!r},{after} which maps them to "
                f"[{low:g}, {high:g}]."
            )
        if within and high - low < 0.51 * (most - least):
            logger.warning(
                "The values of the first image lie in [%g, %g], a part of [%g, %g]. Unless it is a "
                "photo without contrast, operations of your own and value_range do not fit "
                "together in %r.",
                *(low, high, least, most, self.text),
            )
        return self

    def _first_readable(self, split):
        for index in range(min(split.num_examples, _TRIED) if split else 0):
            with contextlib.suppress(*_UNREADABLE):
                image = split.read(tf.constant(index, tf.int64))["image"]
                return np.asarray(self.on_device(self(image, tf.constant([0, 0]))))
        return None

    def on_device(self, images: tf.Tensor) -> tf.Tensor:
        """Applies the operations after `on_device` to a batch; the identity if there are none."""
        for op in self.device_operations:
            images = op.apply(images)
        return images


def read_images(files: Sequence[pathlib.Path], preprocess: str) -> np.ndarray:
    """Returns the images of files, (images, height, width, channels), photos turned upright.

    `preprocess` is a text of operations that ends with images of one size in [-1, 1]. Raises
    `ValueError` for another, and for a file that cannot be read as an image, naming it.
    """
    process = Preprocess(preprocess).require_range("the preprocessing")
    images = []
    for file in files:
        try:
            images.append(process(tf.constant(file.read_bytes()), tf.constant([0, 0])))
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise ValueError(f"{file} cannot be read as an image: {first_line(error)}") from error
    return tf.stack(images).numpy()


def _fused(operations):
    """Returns functions of (example, seed) that do the same as `operations`."""
    match [op.name for op in operations]:
        case ["decode", "inception_crop" | "random_resized_crop", *_]:
            decode, crop, rest = operations[0].apply, operations[1].apply, operations[2:]
            flip = rest.pop(0).apply if rest and rest[0].name == "flip_lr" else None
            to_range = rest.pop(0).apply if rest and rest[0].name == "value_range" else None
            of_image = partial(_decode_and_crop, decode, crop, flip, to_range)
        case ["decode", "resize" | "resize_small", *_]:
            decode, resizing, rest = operations[0].apply, operations[1].apply, operations[1:]
            of_image = partial(_decode_to_size, decode, resizing.size_of)
        case _:
            return operations
    fused = operations[: len(operations) - len(rest)]

    def first(example, seed):
        others = {key: part for key, part in example.items() if key != "image"}
        for op in fused:
            others = op(others, seed)
        return others | {"image": of_image(example["image"], seed)}

    return [first, *rest]


def _decode_to_size(decode, size_of, image, seed):
    return decode(image, size_of=size_of)


def _decode_and_crop(decode, crop, flip, to_range, image, seed):
    """Decodes only what the crop keeps, and flips it before the resize, while it has few bytes."""
    crop_seed = operation_seed(seed, 1)
    image = decode(image, lambda shape: crop.box(shape, crop_seed), crop.size_of)
    if flip:
        image = flip(image, operation_seed(seed, 2))
    # The range changes on the way from bytes to floats, which costs nothing: bilinear resizing is
    # symmetric and linear, to rounding.
    return crop.resize(image, partial(to_range, in_one_pass=True) if to_range else None)
