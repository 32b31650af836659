"""Preprocessing as a readable text: `decode|inception_crop(224)|flip_lr|value_range(-1, 1)`.

Operations are joined by `|` and applied from left to right. Each is a function of an image and,
where it is random, of a seed of its own, so the same seed gives the same result eagerly, inside
tf.data, on any host and after any restart. docs/data.md lists the texts of the published
pipelines.
"""

import ast
import inspect

import training.data.preprocessing.operations  # noqa: F401, fills the registry
from training.data.preprocessing.operation import REGISTRY, Operation

_EXPECTED = "Expected operations joined by '|', such as 'decode|resize(224)|value_range(-1, 1)'."


def parse(text: str) -> list[Operation]:
    """Returns the operations that `text` names.

    Raises:
        ValueError: for a malformed text, an unknown operation or wrong arguments.
    """
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


def _operations(node: ast.expr, text: str) -> list[Operation]:
    call = node if isinstance(node, ast.Call) else None
    name = call.func if call else node
    if not isinstance(name, ast.Name):
        raise ValueError(f"{_EXPECTED} Received: {text!r}.")
    if name.id not in REGISTRY:
        raise ValueError(
            f"Unknown operation {name.id!r} in {text!r}. Known: {', '.join(sorted(REGISTRY))}."
        )
    registered = REGISTRY[name.id]
    try:
        args = [ast.literal_eval(arg) for arg in call.args] if call else []
        keywords = call.keywords if call else []
        kwargs = {str(word.arg): ast.literal_eval(word.value) for word in keywords}
        inspect.signature(registered.make).bind(*args, **kwargs)
        made = registered.make(*args, **kwargs)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(
            f"Expected {name.id}{registered.parameters} in {text!r}: {error}."
        ) from error
    if registered.stage == "text":
        return parse(made)
    return [Operation(name.id, made, registered.stage)]
