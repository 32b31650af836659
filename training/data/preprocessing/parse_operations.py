"""Preprocessing as a readable text: `decode|inception_crop(224)|flip_lr|value_range(-1, 1)`.

Operations apply from left to right to an example, `{"image", "label", …}`. A random one has a seed
of its own: the same seed gives the same result eagerly, inside tf.data, on any host and after any
restart. docs/data.md has the texts of published pipelines. A new operation is one decorated
function in a file that `__init__.py` imports:

    @operation("invert")
    def invert():
        return lambda image: 255 - image
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import tensorflow as tf

from keras_vit.name_suggestions import did_you_mean
from keras_vit.photos.operations_text import apply_arguments, calls

# No text has more, so that no two operations of a run ever share a seed.
MAX_OPERATIONS = 64

# The value of a map of classes where no class is known, as TFDS writes it.
NO_CLASS = -1

# {"image": pixels, "label": …}; tensors of one image.
Example: TypeAlias = dict[str, tf.Tensor]

_Make = TypeVar("_Make", bound=Callable[..., Any])

# {name: (factory, stage)}
REGISTRY: dict[str, tuple[Callable[..., Any], str]] = {}


class Operation(NamedTuple):
    """One operation of a text, with its arguments; called, it processes an example."""

    name: str
    apply: Any  # the function, as `operation` says
    stage: str = "image"
    own: bool = False  # whether the user has registered it
    number: int = 0  # its place among the operations of a text that may draw

    @property
    def random(self) -> bool:
        """Whether it takes a seed."""
        return "seed" in inspect.signature(self.apply).parameters

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Returns the example after the operation; `seed` is that of the example, int64 (2,)."""
        apply = self.apply
        if self.random:
            apply = partial(apply, seed=operation_seed(seed, self.number))
        if self.stage == "example":
            return apply(example)
        maps = {key for key, value in example.items() if key == "image" or value.shape.rank == 3}
        parts = {"image": {"image"}, "geometry": maps, "label": example.keys() - maps}[self.stage]
        return example | {key: apply(example[key]) for key in example if key in parts}


def operation(
    name: str,
    *,
    stage: Literal["image", "geometry", "example", "label", "batch", "text"] = "image",
) -> Callable[[_Make], _Make]:
    """Registers a factory: called with the text's arguments, it returns the function to apply.

    By its stage the function is applied to

    - "image": the image, for its colors: `(image)` or `(image, seed)`, a seed int (2,);
    - "geometry": the image and, with the same seed, each other part of the example of rank 3,
      `(map)` or `(map, seed)`: maps of classes are int32, with `NO_CLASS`;
    - "example": the whole example, `(example)` or `(example, seed)`;
    - "label": each part of the example that is no such map, `(label)`;
    - "batch": a batch of examples and the one before each, `(batch, partner, seed)`;

    and returns it. In the stage "text" the factory returns a text of further operations, which may
    be empty.
    """

    def register(make: _Make) -> _Make:
        if name in REGISTRY:
            raise ValueError(f"The operation {name!r} is registered twice.")
        REGISTRY[name] = make, stage
        return make

    return register


def operation_seed(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Returns the seed of operation `number` of a text, given the image's seed, int64 (2,)."""
    # Cheaper than `fold_in`, and as good: these generators hash their seeds.
    return seed * (1, MAX_OPERATIONS) + (0, number)


def parse(text: str) -> list[Operation]:
    """Returns the operations that `text` names.

    Raises `ValueError` for a malformed text, an unknown operation or wrong arguments.
    """
    operations = []
    for name, call in calls(text):
        if name not in REGISTRY:
            raise ValueError(
                f"{did_you_mean(name, REGISTRY)}Expected operations among "
                f"{', '.join(sorted(REGISTRY))}. Received: {name!r} in {text!r}."
            )
        make, stage = REGISTRY[name]
        made = apply_arguments(make, name, call, text)
        own = not make.__module__.startswith(__package__)
        if stage == "text":
            operations += [each._replace(own=own or each.own) for each in parse(made)]
        else:
            operations.append(Operation(name, made, stage, own))
    return operations
