"""Compute accounting by the paper's convention (Table 6, Figure 5)."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_vit import models, variants
from keras_vit.analysis.cost_of_part import Cost
from keras_vit.analysis.resnet_costs import resnet_costs
from keras_vit.analysis.transformer_costs import transformer_costs

_COUNTERS: dict[str, Callable[..., dict[str, Cost]]] = {
    "ResNetV2": resnet_costs,
    "VisionTransformer": transformer_costs,
}

_EXPECTED = f"Expected a model of {' or '.join(_COUNTERS)}, or the name of one."

# A multiplication and an addition; a backward pass costs two forward passes.
FLOPS_PER_MAC = 2
PASSES_PER_STEP = 3


class Costs:
    """Parameters and work of a model; `str` gives a table.

    Attributes:
        by_type: {layer type: `Cost`}, in the order of the forward pass; a `Cost`
            has `parameters`, `macs` and `executed_macs`.
    """

    def __init__(self, by_type: Mapping[str, Cost]) -> None:
        self.by_type = {kind: cost for kind, cost in by_type.items() if any(cost)}

    @property
    def total(self) -> Cost:
        """The `Cost` of the whole model."""
        return sum(self.by_type.values(), Cost())

    @property
    def parameters(self) -> int:
        """Numbers that are learned."""
        return self.total.parameters

    @property
    def macs(self) -> int:
        """Multiply-accumulates per image and forward pass, by the paper's convention."""
        return self.total.macs

    @property
    def executed_macs(self) -> int:
        """Multiply-accumulates per image that the model's graph performs in a forward pass."""
        return self.total.executed_macs

    @property
    def flops(self) -> int:
        """Floating-point operations per image and forward pass: two for every MAC."""
        return FLOPS_PER_MAC * self.macs

    def exaflops(self, images: float) -> float:
        """Returns 10^18 floating-point operations of training on `images` images.

        That is forward and backward, 6 operations per MAC. `images` is epochs
        times examples, or steps times batch size.
        """
        return PASSES_PER_STEP * self.flops * images / 1e18

    def __str__(self):
        rows = [*self.by_type.items(), ("total", self.total)]
        lines = [f"{'':20}{'parameters':>15}{'MACs':>18}{'executed MACs':>18}"]
        lines += [
            f"{kind:20}{cost.parameters:15,}{cost.macs:18,}{cost.executed_macs:18,}"
            for kind, cost in rows
        ]
        return "\n".join(lines)


def costs(model: str | keras.Model, **arguments: Any) -> Costs:
    """Counts the parameters and the work of a model, without running it.

    Args:
        model: a `keras_vit.VisionTransformer` or `keras_vit.ResNetV2`, or the name
            of one, which is then counted without being built.
        **arguments: for a name only, what `keras_vit.create_model` takes.

    Returns:
        A `Costs`.

    Raises:
        ValueError: if the name is not known, if the model is of another class, or if
            arguments come with a model.

    Examples:
        >>> keras_vit.costs("ViT-B/16").macs
        17563828224
        >>> keras_vit.costs("ViT-B/16", num_classes=None).exaflops(images=7 * 303e6)
        223.508...
    """
    if isinstance(model, str):
        class_name, named = variants.arguments_of(model)
        if class_name not in _COUNTERS:
            raise ValueError(f"{_EXPECTED} Received: {model!r}, of {class_name}")
        complete = {**_defaults(class_name), **named}
        unknown = sorted(set(arguments) - set(complete))
        if unknown:
            raise ValueError(
                f"Expected arguments of {class_name}: {', '.join(complete)}. "
                f"Received: {', '.join(unknown)}"
            )
        return Costs(_COUNTERS[class_name](**{**complete, **arguments}))
    class_name = type(model).__name__
    if class_name not in _COUNTERS:
        raise ValueError(f"{_EXPECTED} Received: a {class_name}")
    if arguments:
        raise ValueError(
            "Arguments are for a model's name; a model has its own. "
            f"Received: {', '.join(arguments)}"
        )
    return Costs(_COUNTERS[class_name](**model.arguments))


def _defaults(class_name):
    parameters = inspect.signature(getattr(models, class_name)).parameters.values()
    known = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    return {name: value for name, value in known.items() if name not in ("name", "dtype")}
