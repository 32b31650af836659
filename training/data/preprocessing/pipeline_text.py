"""Preprocessing as a readable text: `decode|inception_crop(224)|flip_lr|value_range(-1, 1)`.

Operations are joined by `|` and applied from left to right. Each is a function of an image and,
where it is random, of a seed of its own, so the same seed gives the same result eagerly, inside
tf.data, on any host and after any restart. docs/data.md lists the texts of the published
pipelines.

Adding an operation is one decorated function:

    @operation("invert")
    def invert():
        return lambda image: 255 - image
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable

import tensorflow as tf

_MAX_OPERATIONS = 64
_REGISTRY: dict[str, tuple[Callable, str]] = {}


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of a text, its arguments applied.

    Attributes:
        name: name in the text.
        apply: `apply(image)` or, when `random`, `apply(image, seed)` with a seed int (2,).
        random: whether it takes a seed.
        stage: what it is applied to: an "image", a "label" or a "batch".
    """

    name: str
    apply: Callable
    random: bool = False
    stage: str = "image"


def operation(name: str, *, stage: str = "image"):
    """Registers a factory: called with the text's arguments, it returns the function to apply.

    The function takes `(image)` or `(image, seed)`. In the stage "label" it takes `(label)`; in
    the stage "batch" `(batch, partner, seed)`, both `{"image", "label"}`. In the stage "text" the
    factory returns a text of further operations, which may be empty.
    """

    def register(factory):
        if name in _REGISTRY:
            raise ValueError(f"The operation {name!r} is registered twice.")
        _REGISTRY[name] = (factory, stage)
        return factory

    return register


def operations() -> dict[str, str]:
    """Returns name and signature of every registered operation."""
    _load_all()
    return {name: f"{name}{inspect.signature(factory)}" for name, (factory, _) in _REGISTRY.items()}


def parse(text: str) -> list[Operation]:
    """Returns the operations that `text` names.

    Raises:
        ValueError: for a malformed text, an unknown operation or wrong arguments.
    """
    _load_all()
    if not text.strip():
        return []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{_EXPECTED} Received: {text!r}, {error}.") from error
    nodes = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        nodes.append(tree.right)
        tree = tree.left
    return [op for node in (tree, *reversed(nodes)) for op in _operations(node, text)]


_EXPECTED = "Expected operations joined by '|', such as 'decode|resize(224)|value_range(-1, 1)'."


def _operations(node: ast.expr, text: str) -> list[Operation]:
    call = node if isinstance(node, ast.Call) else None
    name = call.func if call else node
    if not isinstance(name, ast.Name):
        raise ValueError(f"{_EXPECTED} Received: {text!r}.")
    if name.id not in _REGISTRY:
        raise ValueError(
            f"Unknown operation {name.id!r} in {text!r}. Known: {', '.join(sorted(_REGISTRY))}."
        )
    factory, stage = _REGISTRY[name.id]
    try:
        args = [ast.literal_eval(arg) for arg in call.args] if call else []
        kwargs = {arg.arg: ast.literal_eval(arg.value) for arg in call.keywords} if call else {}
        inspect.signature(factory).bind(*args, **kwargs)
        function = factory(*args, **kwargs)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(
            f"Expected {name.id}{inspect.signature(factory)} in {text!r}: {error}."
        ) from error
    if stage == "text":
        return parse(function)
    random = "seed" in inspect.signature(function).parameters
    return [Operation(name.id, function, random, stage)]


class Preprocess:
    """A parsed text, sorted by what its operations apply to; called, it processes an image.

    Attributes:
        label_operations: operations on labels, in order.
        batch_operations: operations on whole batches (such as mixup), in order.
        device_operations: operations after `on_device`, for the training step to apply.
    """

    def __init__(self, text: str, *, pixel_scale: int = 1):
        self.text = text
        parsed = parse(text)
        names = [op.name for op in parsed]
        cut = names.index("on_device") if "on_device" in names else len(parsed)
        host, self.device_operations = parsed[:cut], parsed[cut + 1 :]
        self.batch_operations = [op for op in host if op.stage == "batch"]
        self.label_operations = [op for op in host if op.stage == "label"]
        operations = [op for op in host if op.stage == "image"]
        if pixel_scale != 1:
            position = 1 if operations and operations[0].name == "decode" else 0
            operations.insert(position, Operation("pixel_scale", _scale(pixel_scale)))
        if any(op.random or op.stage != "image" for op in self.device_operations):
            raise ValueError(
                f"Expected only deterministic operations after on_device. Received: {text!r}."
            )
        if len(operations) > _MAX_OPERATIONS:
            raise ValueError(f"Expected at most {_MAX_OPERATIONS} operations. Received: {text!r}.")
        self._operations = _fuse(operations)

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Applies the operations on single images.

        Args:
            image: encoded bytes (a string scalar), or uint8/float32 (height, width, channels).
            seed: integers (2,); operation number i draws from `(seed[0], 64 · seed[1] + i)`.
        """
        seed = tf.cast(seed, tf.int64)
        for number, op in self._operations:
            if op.random:
                image = op.apply(image, operation_seed(seed, number))
            else:
                image = op.apply(image)
        return image

    def on_device(self, images: tf.Tensor) -> tf.Tensor:
        """Applies the operations after `on_device` to a batch; the identity if there are none."""
        for op in self.device_operations:
            images = op.apply(images)
        return images


def operation_seed(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Returns the seed of operation `number`, given the image's seed, int64 (2,)."""
    # Cheaper than `fold_in`, and as good: these generators hash their seeds.
    return seed * (1, _MAX_OPERATIONS) + (0, number)


def _scale(factor: int):
    return lambda image: image * tf.cast(factor, image.dtype)


def _fuse(operations: list[Operation]) -> list[tuple[int, Operation]]:
    """Numbers the operations; makes one of `decode`, a crop and the flip and range after it.

    Of a JPEG, it decodes only what the crop keeps. It flips before the crop is resized, while
    there are fewer bytes to move, and changes the range on the way from bytes to floats, which
    costs nothing: bilinear resizing is symmetric and linear, to rounding.
    """
    numbered = list(enumerate(operations))
    if [op.name for op in operations[:1]] != ["decode"] or len(operations) < 2:
        return numbered
    decode, crop = operations[0].apply, operations[1].apply
    if not hasattr(crop, "decode_and_crop"):
        return numbered
    rest = numbered[2:]
    flip = rest.pop(0) if rest and rest[0][1].name == "flip_lr" else None
    to_range = rest.pop(0) if rest and rest[0][1].name == "value_range" else None

    def fused(image, seed):
        image = crop.decode_and_crop(image, seed, decode)
        if flip:
            # `seed` is the crop's, operation 1.
            image = flip[1].apply(image, tf.add(seed, (0, flip[0] - 1)))
        return crop.finish(image, to_range[1].apply.from_uint8 if to_range else None)

    return [(1, Operation("decode+crop", fused, random=True)), *rest]


def _load_all() -> None:
    # Imported here because they register themselves with this module.
    from training.data.preprocessing import bit_resolution, image_ops, mixup, randaugment  # noqa: F401
