"""Parameters and multiply-accumulates of the ResNets: the hybrids' stem and BiT."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_vit.analysis.cost_of_part import Cost
from keras_vit.models.argument_checks import as_height_width
from keras_vit.typing import ImageSize


class FeatureMap(NamedTuple):
    """The size of an intermediate result."""

    height: int
    width: int
    channels: int


def taps(size: int, kernel_size: int, strides: int, output_size: int, padding_before: int) -> int:
    """Returns how many inputs a convolution reads along one axis, over all its outputs.

    Positions in the zero padding are not read.
    """
    total = 0
    for output in range(output_size):
        first = output * strides - padding_before
        total += max(min(first + kernel_size, size) - max(first, 0), 0)
    return total


def same_padding(size: int, kernel_size: int, strides: int) -> tuple[int, int]:
    """Returns (output size, zeros before) of "same" padding along one axis."""
    output_size = -(-size // strides)
    total = max((output_size - 1) * strides + kernel_size - size, 0)
    return output_size, total // 2


class _Counter:
    """Follows an image through a ResNet and adds up what it costs."""

    def __init__(self, image_size, in_channels):
        self.at = FeatureMap(*as_height_width(image_size), in_channels)
        self.convolutions = Cost()
        self.normalization = Cost()

    def pool(self, padding):
        """Halves the feature map as the root's max-pooling does."""
        height, width = (padding(size, 3, 2)[0] for size in self.at[:2])
        self.at = FeatureMap(height, width, self.at.channels)

    def convolve(self, filters, kernel_size, strides, padding=same_padding):
        """Adds a convolution without bias and moves on to its output."""
        (height, top), (width, left) = (padding(s, kernel_size, strides) for s in self.at[:2])
        read = taps(self.at.height, kernel_size, strides, height, top) * taps(
            self.at.width, kernel_size, strides, width, left
        )
        kernel = kernel_size * kernel_size * self.at.channels * filters
        self.convolutions += Cost(
            parameters=kernel,
            macs=read * self.at.channels * filters,
            executed_macs=kernel * height * width,
        )
        self.at = FeatureMap(height, width, filters)

    def normalize(self, channels):
        self.normalization += Cost(parameters=2 * channels)

    def unit(self, filters, strides, padding, pre_activation):
        """Adds a bottleneck unit; see `keras_vit.layers.BottleneckUnit`."""
        start, width = self.at, 4 * filters
        if pre_activation:
            norms = [start.channels, filters, filters]
        else:
            norms = [filters, filters, width]
        if strides != 1 or start.channels != width:
            self.convolve(width, 1, strides)
            if not pre_activation:
                norms.append(width)
        self.at = start
        self.convolve(filters, 1, 1)
        self.convolve(filters, 3, strides, padding)
        self.convolve(width, 1, 1)
        for channels in norms:
            self.normalize(channels)

    def stages(self, num_layers, width_factor, padding, pre_activation):
        for stage, units in enumerate(num_layers):
            for unit in range(units):
                strides = 2 if stage > 0 and unit == 0 else 1
                self.unit(64 * width_factor * 2**stage, strides, padding, pre_activation)


def stem_costs(
    image_size: ImageSize, num_layers: Sequence[int], width_factor: float, in_channels: int = 3
) -> tuple[Cost, Cost, FeatureMap]:
    """Counts the ResNet of a hybrid.

    Returns:
        (`Cost` of the convolutions, `Cost` of the normalizations, `FeatureMap` that it gives).
    """
    counter = _Counter(image_size, in_channels)
    counter.convolve(64 * width_factor, 7, 2)
    counter.normalize(64 * width_factor)
    counter.pool(same_padding)
    counter.stages(num_layers, width_factor, same_padding, pre_activation=False)
    return counter.convolutions, counter.normalization, counter.at


def _symmetric_padding(size, kernel_size, strides):
    before = kernel_size // 2
    return (size + 2 * before - kernel_size) // strides + 1, before


def resnet_costs(
    image_size: ImageSize,
    num_layers: Sequence[int],
    width_factor: float,
    num_classes: int | None,
    in_channels: int = 3,
    **_: Any,
) -> dict[str, Cost]:
    """Counts a `ResNetV2`; arguments are its constructor's. Returns {layer type: `Cost`}."""
    counter = _Counter(image_size, in_channels)
    counter.convolve(64 * width_factor, 7, 2, _symmetric_padding)
    counter.pool(_symmetric_padding)
    counter.stages(num_layers, width_factor, _symmetric_padding, pre_activation=True)
    counter.normalize(counter.at.channels)
    head = Cost()
    if num_classes is not None:
        head = Cost.of_product(counter.at.channels, num_classes, bias=True)
    return {
        "convolution": counter.convolutions,
        "normalization": counter.normalization,
        "head": head,
    }
