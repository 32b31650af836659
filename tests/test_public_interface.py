import ast
import pathlib
import re

from benchmarks.__main__ import BENCHMARKS
from keras_vit import lazy_imports
from keras_vit.__main__ import EXPORT, KERAS_VIT
from keras_vit.training.config import default_config

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("keras_vit", "training", "export", "benchmarks")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in FILES}
NODES = [node for module in MODULES.values() for node in module.body]
CLASSES = [node for node in NODES if isinstance(node, ast.ClassDef)]
# What Keras calls and describes.
OF_KERAS = {"build", "call", "compute_loss", "compute_output_shape", "compute_output_spec"}
OF_KERAS |= {"from_config", "get_config", "load_own_variables", "save_own_variables"}
OF_KERAS |= {"add_weight", "convolution_op", "train_step", "update_step"}
SPECIAL = {"__init__", "__call__"}  # What Python calls.


def methods(owner):
    nodes = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) for node in nodes if node.name[0] != "_"}


PROTOCOLS = [methods(node) for node in CLASSES if "Protocol" in map(ast.unparse, node.bases)]


def is_described(name, owner):
    """Tells whether a method has a docstring in its class, a base of it or a protocol it has."""
    own = methods(owner)
    protocols = [protocol for protocol in PROTOCOLS if protocol.keys() <= own.keys()]
    if any(each.get(name) for each in (own, *protocols)):
        return True
    for base in owner.bases:
        package, _, base = ast.unparse(base).rpartition(".")
        ours = [node for node in CLASSES if node.name == base and not package.startswith("keras.")]
        if any(is_described(name, node) for node in ours) or (not ours and name in OF_KERAS):
            return True
    return False


def lacking(body, owner=None):
    """Yields what the public definitions of a module, or of the class `owner`, lack."""
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    # A module that has all functions of a protocol: the file of a command.
    described = {name for each in PROTOCOLS if each.keys() <= functions for name in each}
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_") and node.name not in SPECIAL:
            continue
        name = f"{owner.name}.{node.name}" if owner else node.name
        in_class = owner and (node.name in SPECIAL or is_described(node.name, owner))
        in_class = in_class or (not owner and node.name in described)
        if not (ast.get_docstring(node) or in_class):
            yield f"docstring of {name}"
        if isinstance(node, ast.ClassDef):
            yield from lacking(node.body, node)
            continue
        of = node.args
        for each in (*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg):
            if each and each.arg not in ("self", "cls") and not each.annotation:
                yield f"hint of {name}({each.arg})"
        if not (node.returns or node.name == "__init__"):
            yield f"hint of what {name} returns"


def test_public_interface_is_described():
    assert not [(path, what) for path, module in MODULES.items() for what in lacking(module.body)]
    assert not [path for path, tree in MODULES.items() if tree.body and not ast.get_docstring(tree)]


def test_imports_stand_at_the_top_except_where_it_is_said():
    found = set()
    for path, module in MODULES.items():
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        for node in (each for function in functions for each in ast.walk(function)):
            imports = isinstance(node, ast.Import | ast.ImportFrom)
            ours = imports and re.search(rf" ({'|'.join(PACKAGES)})\b", ast.unparse(node))
            if ours or (imports and getattr(node, "level", 0)):
                found.add(path)
    said = re.findall("`(.+?)`", lazy_imports.__doc__)
    assert not [path for path in found if not any(each in path for each in said)]
    assert not [each for each in said if not any(each in path for path in found)]


def defaults(body, owner=""):
    """Yields `NAME(ARGUMENT=DEFAULT)` of what is public and has a default other than None."""
    for node in body:
        name = getattr(node, "name", "_")
        if isinstance(node, ast.ClassDef):
            yield from defaults(node.body, name)
        elif isinstance(node, ast.FunctionDef) and (name[0] != "_" or name in SPECIAL):
            name = owner if name == "__init__" else f"{owner}.{name}" if owner else name
            of = node.args
            positional = zip([*of.posonlyargs, *of.args][::-1], of.defaults[::-1], strict=False)
            for each, default in (*positional, *zip(of.kwonlyargs, of.kw_defaults, strict=True)):
                if default and ast.unparse(default) != "None":
                    yield f"{name}({each.arg}={ast.unparse(default)})"


def options(commands):
    """Yields `COMMAND --OPTION=DEFAULT` of the options of commands."""
    for name in commands.table:
        for action in commands.parser(name)._actions:
            if action.option_strings:
                yield f"{name} {action.option_strings[0]}={action.default!r}"


def test_defaults_change_on_purpose_only():
    """`golden/defaults.txt` has those that users rely on: the papers', and the safe ones."""
    found = {line for module in MODULES.values() for line in defaults(module.body)}
    found |= {line for each in (KERAS_VIT, EXPORT, BENCHMARKS) for line in options(each)}
    for key, value in default_config().items():
        rows = value.items() if hasattr(value, "items") else [("", value)]
        found |= {f"config.{key}{name and '.'}{name}={each!r}" for name, each in rows}
    written = (ROOT / "tests" / "golden" / "defaults.txt").read_text().splitlines()
    assert not set(written) - found
