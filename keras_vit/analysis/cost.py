"""Parameters and multiply-accumulates by the paper's convention (Table 6, Figure 5)."""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import keras

from keras_vit import models, variants
from keras_vit.models.argument_ranges import CLASS_TOKENS, as_height_width, checked

# A multiplication and an addition; a backward pass costs two forward passes.
FLOPS_PER_MAC = 2
PASSES_PER_STEP = 3


class Cost(NamedTuple):
    """Size and work of a part of a model; work is for one image and one forward pass."""

    parameters: int = 0  # numbers that are learned
    # Multiply-accumulates of matrix products and convolutions by the paper's convention: every
    # token passes through every block, and a convolution does not read its zero padding.
    macs: int = 0
    # Those that the graph performs: a model that classifies from the class token computes the
    # last block for that token alone; padding is multiplied like any number.
    executed_macs: int = 0

    def __add__(self, other):
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def __mul__(self, count):
        return Cost(*(count * a for a in self))


class Costs:
    """Parameters and work of a model; `str` gives a table.

    Attributes:
        by_type: {layer type: `Cost`}, in the order of the forward pass; a `Cost`
            has `parameters`, `macs` and `executed_macs`.
        total: the `Cost` of the whole model.
        parameters: numbers that are learned.
        macs: multiply-accumulates per image and forward pass, by the paper's convention.
        executed_macs: those that the model's graph performs.
        flops: floating-point operations per image and forward pass: two for every MAC.
    """

    def __init__(self, by_type: Mapping[str, Cost]) -> None:
        self.by_type = {kind: cost for kind, cost in by_type.items() if any(cost)}
        self.total = sum(self.by_type.values(), Cost())
        self.parameters, self.macs, self.executed_macs = self.total
        self.flops = FLOPS_PER_MAC * self.macs

    def exaflops(self, images: float) -> float:
        """Returns 10^18 floating-point operations of training, forward and backward, 6 per MAC.

        `images` is epochs times examples, or steps times batch size.
        """
        return PASSES_PER_STEP * self.flops * images / 1e18

    def __str__(self):
        rows = [*self.by_type.items(), ("total", self.total)]
        lines = [f"{'':20}{'parameters':>15}{'MACs':>18}{'executed MACs':>18}"]
        lines += ["{:20}{:15,}{:18,}{:18,}".format(kind, *cost) for kind, cost in rows]
        return "\n".join(lines)


def costs(model: str | keras.Model, **arguments: Any) -> Costs:
    """Counts the parameters and the work of a model, without running it.

    Args:
        model: a `keras_vit.VisionTransformer` or `keras_vit.ResNetV2`, or the name
            of one, which is then counted without being built.
        **arguments: for a name only, what `keras_vit.create_model` takes.

    Raises:
        ValueError: if the name is not known, if the model is of another class, if
            arguments come with a model, or if no model has such arguments.

    Examples:
        >>> keras_vit.costs("ViT-B/16").macs
        17563828224
        >>> keras_vit.costs("ViT-B/16", num_classes=None).exaflops(images=7 * 303e6)
        223.508...
    """
    class_name, given = type(model).__name__, getattr(model, "arguments", {})
    if named := isinstance(model, str):
        class_name, given = variants.arguments_of(model)
    if class_name not in _COUNTERS:
        raise ValueError(
            f"Expected a model of {' or '.join(_COUNTERS)}, or the name of one. "
            f"Received: {model!r}, of {class_name}"
        )
    parameters = inspect.signature(getattr(models, class_name)).parameters
    known = [name for name in parameters if named and name not in ("name", "dtype")]
    if unknown := sorted(arguments.keys() - {*known}):
        expected = f"arguments of {class_name}: {', '.join(known)}" if named else "a model alone"
        raise ValueError(f"Expected {expected}. Received: {', '.join(unknown)}")
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    merged = {**defaults, **given, **arguments}
    return Costs(_COUNTERS[class_name](SimpleNamespace(**merged | checked(merged))))


def _dense(inputs, outputs, rows=1, executed=None):
    """Returns the `Cost` of a dense layer of `rows` vectors; the graph computes `executed` ones."""
    macs = inputs * outputs
    return Cost(macs + outputs, rows * macs, (rows if executed is None else executed) * macs)


def _attention(width, heads, length, sequences=1, queries=None, relative=False):
    """Returns the `Cost` of attention within `sequences` of `length` tokens (equations 5 to 8).

    Of each, the graph computes `queries` outputs; None means all.
    """
    tokens, executed = sequences * length, sequences * (queries or length)
    query_and_out = _dense(width, width, tokens, executed) * 2
    key_and_value = _dense(width, width, tokens) * 2
    distances = (2 * length - 1) * width if relative else 0
    products = 2 * length * width + distances
    pairs = Cost(distances // heads, tokens * products, executed * products)
    return query_and_out + key_and_value + pairs


def _mlp(width, mlp_dim, tokens, executed=None, gated=False):
    """Returns the `Cost` of the dense layers of an encoder block (equation 3)."""
    first = _dense(width, mlp_dim, tokens, executed) * (1 + gated)
    return first + _dense(mlp_dim, width, tokens, executed)


def _encoder(a, grid, tokens):
    """Returns the `Cost` of all attention, all MLPs and all of the encoder's norms."""
    width, depth = a.hidden_size, a.num_layers
    relative = a.position_embedding == "relative"
    attention = functools.partial(_attention, width, a.num_heads, relative=relative)
    mlp = functools.partial(_mlp, width, a.mlp_dim, tokens, gated=a.mlp == "swiglu")
    if a.attention == "axial":
        rows, columns = grid
        by_line = attention(columns, sequences=rows) + attention(rows, sequences=columns)
        return by_line * depth, mlp() * (2 * depth), Cost(2 * width) * (4 * depth + 1)
    queries = CLASS_TOKENS[a.classifier] if a.classifier in ("token", "distilled") else tokens
    every, every_mlp = attention(tokens) * (depth - 1), mlp() * (depth - 1)
    norms = Cost(2 * width) * (2 * depth + 1)
    return every + attention(tokens, queries=queries), every_mlp + mlp(queries), norms


def _positions(a, grid, tokens):
    width, (rows, columns) = a.hidden_size, grid
    prefix = tokens - rows * columns
    tables = {
        "learned_1d": tokens * width,
        "learned_2d": (rows + columns) * width // 2 + prefix * width,
    }
    count = a.num_layers if a.position_placement == "every" else 1
    return Cost(tables.get(a.position_embedding, 0)) * count


def _head(a, tokens):
    """Returns the `Cost` of pooling, the hidden layer and the head, and of their norms."""
    width, head, norm = a.hidden_size, Cost(), Cost()
    if a.classifier == "map":
        head = Cost(width, 2 * tokens * width, 2 * tokens * width)
        head += _dense(width, width) * 2 + _dense(width, width, tokens) * 2
        head += _mlp(width, a.mlp_dim, 1)
        norm = Cost(2 * width)
    inputs = 2 * width if a.classifier == "token_gap" else width
    heads = 2 if a.classifier == "distilled" else 1
    for units in filter(None, (a.representation_size, a.num_classes)):
        head += _dense(inputs, units, tokens if a.classifier == "unpooled" else 1) * heads
        inputs = units
    return head, norm


def _vision_transformer(a):
    """Counts a `VisionTransformer` of its constructor's arguments. Returns {layer type: `Cost`}.

    For a model of images and one global attention over N patches and T tokens this
    is 3 P^2 N D + L (4 T D^2 + 2 T^2 D + 2 T D M) and the head.
    """
    width, patch = a.hidden_size, a.patch_size
    stem = _ResNet(a, pre_activation=False)
    if a.resnet:
        stem.add(**a.resnet)
    height, columns = (side // patch for side in stem.size)
    patches = height * columns
    if not patches:
        raise ValueError(
            f"Expected images of at least one patch of {patch} x {patch}. Received: features of "
            f"{stem.size[0]} x {stem.size[1]}."
        )
    grid = (height, columns)
    class_tokens = CLASS_TOKENS.get(a.classifier, 0)
    tokens, registers = patches + class_tokens, a.register_tokens
    attention, mlp, encoder_norm = _encoder(a, grid, tokens + registers)
    head, head_norm = _head(a, tokens)
    return {
        "convolution": stem.convolutions,
        "patch embedding": _dense(patch**2 * stem.channels, width, patches),
        "class token": Cost(width * class_tokens),
        "register tokens": Cost(registers * width),
        "position embedding": _positions(a, grid, tokens),
        "attention": attention,
        "MLP": mlp,
        "normalization": stem.normalization + encoder_norm + head_norm,
        "head": head,
    }


class _ResNet:
    """Follows an image through a ResNet and adds up the cost.

    With `pre_activation` it is BiT's, which pads as much on either side; else a hybrid's.
    """

    def __init__(self, a, pre_activation):
        self.size, self.channels = as_height_width(a.image_size), a.in_channels
        self.pre_activation = pre_activation
        self.convolutions = self.normalization = Cost()

    def add(self, num_layers, width_factor):
        """Adds the root and the stages of bottleneck units."""
        root = int(64 * width_factor)
        self.convolve(root, 7, 2)
        if not self.pre_activation:
            self.normalize(root)
        self.size = [-(-side // 2) for side in self.size]  # max-pooling
        for stage, units in enumerate(num_layers):
            for unit in range(units):
                self.unit(root * 2**stage, 2 if stage and not unit else 1)
        if self.pre_activation:
            self.normalize(self.channels)

    def convolve(self, filters, kernel_size, strides):
        """Adds a convolution without bias and moves on to its output."""
        kernel, macs = kernel_size**2 * self.channels * filters, self.channels * filters
        outputs = [-(-side // strides) for side in self.size]
        for side, output in zip(self.size, outputs, strict=True):
            before = kernel_size // 2
            if not self.pre_activation:
                before = max((output - 1) * strides + kernel_size - side, 0) // 2
            firsts = (place * strides - before for place in range(output))
            # How many inputs, not padding, are read along the axis for all outputs.
            macs *= sum(max(min(first + kernel_size, side) - max(first, 0), 0) for first in firsts)
        self.convolutions += Cost(kernel, macs, kernel * math.prod(outputs))
        self.size, self.channels = outputs, filters

    def normalize(self, *channels):
        self.normalization += Cost(2 * sum(channels))

    def unit(self, filters, strides):
        """Adds a bottleneck unit; see `keras_vit.layers.BottleneckUnit`."""
        start, width = (self.size, self.channels), 4 * filters
        self.normalize(filters, filters, self.channels if self.pre_activation else width)
        if strides != 1 or self.channels != width:
            self.convolve(width, 1, strides)
            if not self.pre_activation:
                self.normalize(width)
        self.size, self.channels = start
        self.convolve(filters, 1, 1)
        self.convolve(filters, 3, strides)
        self.convolve(width, 1, 1)


def _resnet_v2(a):
    """Counts a `ResNetV2` of its constructor's arguments. Returns {layer type: `Cost`}."""
    body = _ResNet(a, pre_activation=True)
    body.add(a.num_layers, a.width_factor)
    return {
        "convolution": body.convolutions,
        "normalization": body.normalization,
        "head": Cost() if a.num_classes is None else _dense(body.channels, a.num_classes),
    }


_COUNTERS: dict[str, Callable[[Any], dict[str, Cost]]] = {
    "ResNetV2": _resnet_v2,
    "VisionTransformer": _vision_transformer,
}
