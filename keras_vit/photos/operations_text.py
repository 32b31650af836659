"""The grammar of preprocessing texts, such as `decode|resize(224)|value_range(-1, 1)`."""

import ast
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# An image larger than this is an error of its file or of the operations, not a photograph: a few
# kilobytes may claim gigabytes, and resizing the smaller side of 1×5000 pixels would ask for them.
MAX_PIXELS = 1 << 27

_EXPECTED = "Expected operations joined by '|', such as 'decode|resize(224)|value_range(-1, 1)'."


def calls(text: str) -> Iterator[tuple[str, ast.Call]]:
    """Yields each operation of a text: its name, and its arguments as Python's syntax has them.

    Raises ValueError for a malformed text.
    """
    for part in text.split("|") if text.strip() else []:
        try:
            call = ast.parse(part.strip(), mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"{_EXPECTED} Received: {text!r}, {error}.") from error
        call = call if isinstance(call, ast.Call) else ast.Call(call, [], [])
        if not isinstance(call.func, ast.Name):
            raise ValueError(f"{_EXPECTED} Received: {text!r}.")
        yield call.func.id, call


def apply_arguments(make: Callable, name: str, call: ast.Call, text: str) -> Any:
    """Calls a function with the arguments of an operation.

    Raises ValueError, which names the function's arguments, for others or if the function does.
    """
    signature = inspect.signature(make)
    try:
        args = [ast.literal_eval(arg) for arg in call.args]
        kwargs = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        signature.bind(*args, **kwargs)
        return make(*args, **kwargs)
    except (TypeError, ValueError, ArithmeticError) as error:
        names = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
        expected = f"{name}{inspect.Signature(names)}"
        raise ValueError(f"Expected {expected} in {text!r}: {error}.") from error


def height_and_width(size: int | Sequence[int]) -> tuple[int, int]:
    """Returns (height, width) of a size in pixels; raises ValueError for one that no image has."""
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise ValueError(f"an image has at least one pixel, not {size}")
    if height * width > MAX_PIXELS:
        raise ValueError(f"an image has at most {MAX_PIXELS} pixels, not {height} x {width}")
    return operator.index(height), operator.index(width)
