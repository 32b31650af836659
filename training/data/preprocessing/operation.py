"""What an operation of a preprocessing text is, and the registry of their names.

Adding an operation is one decorated function in a file of `operations`, which its
`__init__.py` lists:

    @operation("invert")
    def invert():
        return lambda image: 255 - image
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import tensorflow as tf

# No text has more, so that no two operations of a run ever share a seed.
MAX_OPERATIONS = 64

_Make = TypeVar("_Make", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of a text, its arguments applied.

    Attributes:
        name: name in the text.
        apply: `apply(image)` or, when `random`, `apply(image, seed)` with a seed int (2,).
        stage: what it is applied to: an "image", a "label" or a "batch".
    """

    name: str
    apply: Callable[..., Any]
    stage: str = "image"

    @property
    def random(self) -> bool:
        """Whether it takes a seed."""
        return "seed" in inspect.signature(self.apply).parameters


class Registered(NamedTuple):
    """What makes an operation of the arguments in a text: a function or a class."""

    make: Callable[..., Any]
    stage: str

    @property
    def parameters(self) -> str:
        """The arguments that it takes with their defaults, in parentheses."""
        found = inspect.signature(self.make).parameters.values()
        names = [one.replace(annotation=inspect.Parameter.empty) for one in found]
        return str(inspect.Signature(names))


REGISTRY: dict[str, Registered] = {}


def operation(
    name: str, *, stage: Literal["image", "label", "batch", "text"] = "image"
) -> Callable[[_Make], _Make]:
    """Registers a factory: called with the text's arguments, it returns the function to apply.

    The function takes `(image)` or `(image, seed)`. In the stage "label" it takes `(label)`; in
    the stage "batch" `(batch, partner, seed)`, both `{"image", "label"}`. In the stage "text" the
    factory returns a text of further operations, which may be empty.
    """

    def register(make: _Make) -> _Make:
        if name in REGISTRY:
            raise ValueError(f"The operation {name!r} is registered twice.")
        REGISTRY[name] = Registered(make, stage)
        return make

    return register


def operation_seed(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Returns the seed of operation `number` of a text, given the image's seed, int64 (2,)."""
    # Cheaper than `fold_in`, and as good: these generators hash their seeds.
    return seed * (1, MAX_OPERATIONS) + (0, number)
