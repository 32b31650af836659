"""`make test-mutants`: changes one place of the packages at a time and runs the tests near it.

Cosmic Ray makes the changes, in copies of the repository. Which places they are depends on the seed
and on their own lines, so edits elsewhere leave the sample as it is. Near are the test files of the
folder that mirrors the file's and those that name it or what it defines, the most telling first.
"""

import ast
import concurrent.futures
import contextlib
import hashlib
import linecache
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator

from tests.equivalent_mutants import EQUIVALENT

ROOT = pathlib.Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
PACKAGES = ("keras_vit", "training", "export", "benchmarks")
# Cosmic Ray has further ones, most of which end at the first import.
COMPARISONS = "Lt_LtE LtE_Lt Gt_GtE GtE_Gt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is"
ARITHMETIC = "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul BitAnd_BitOr"
OTHERS = (
    "NumberReplacer AddNot ReplaceUnaryOperator_USub_UAdd ReplaceUnaryOperator_Delete_Not "
    "ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd "
    "ReplaceBreakWithContinue ReplaceContinueWithBreak ExceptionReplacer ZeroIterationForLoop"
)
OPERATORS = {
    **{f"core/ReplaceComparisonOperator_{each}": "comparison" for each in COMPARISONS.split()},
    **{f"core/ReplaceBinaryOperator_{each}": "arithmetic" for each in ARITHMETIC.split()},
    **{f"core/{each}": each for each in OTHERS.split()},
}
# Which execute or look at everything.
APART = ("tests/fuzz/", "tests/test_readme", "tests/test_public_interface")
JAX = "tests/training/engine/jax/"


def hashed(text):
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def not_seen(code):
    """Yields where no change shows: hints of types, messages of errors, `strict` of `zip`."""
    for node in ast.walk(ast.parse(code)):
        found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        found += [node.exc] if isinstance(node, ast.Raise) else []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "zip":
            found += node.keywords
        for each in filter(None, found):
            yield (each.lineno, each.col_offset), (each.end_lineno, each.end_col_offset)


def mutants(tree, seed):
    """Returns one mutant of every place, (path, operator, occurrence, line), in a random order."""
    places = {}
    for file in (file for each in PACKAGES for file in sorted((tree / each).rglob("*.py"))):
        path, code = str(file.relative_to(tree)), file.read_text(encoding="utf-8")
        if path.startswith(("keras_vit/training/", "keras_vit/export/")):
            continue  # links to the folders at the top
        nodes, lines, hidden = [*ast_nodes(get_ast(code))], code.splitlines(), [*not_seen(code)]
        for name, kind in OPERATORS.items():
            operator = get_operator(name)()
            positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
            for occurrence, start in enumerate(positions):
                if not any(first <= start < last for first, last in hidden):
                    rank = hashed(f"{seed} {path} {kind} {start[1]} {lines[start[0] - 1]}")
                    mutant = (path, name, occurrence, start[0])
                    places.setdefault((rank, start), []).append(mutant)
    # A number has two, one more and one less.
    return [places[key][key[0] % len(places[key])] for key in sorted(places)]


def near(tree, path):
    """Returns the test files near a file of the packages, the nearest first."""
    code = (tree / path).read_text(encoding="utf-8")
    name = r"^(?: {,4}(?:def|class) )?((?<= )[A-Za-z]\w{4,}|[A-Z_]{5,})\b"
    names = {pathlib.Path(path).stem, *re.findall(name, code, re.M)}
    module = pathlib.Path(path).with_suffix("").parts[-2:]
    imports = re.compile(r"\b{}(\.| import .*\b){}\b".format(*module))
    mirror, ranked = (tree / "tests" / path).parent, []
    while not mirror.exists():
        mirror = mirror.parent
    for file in (tree / "tests").rglob("test_*.py"):
        test = str(file.relative_to(tree))
        # Beside what belongs to a package as a whole stand all folders.
        top = mirror.parent == tree / "tests"
        within = file.parent in (mirror, mirror.parent) if top else mirror in file.parents
        content = file.read_text(encoding="utf-8")
        named = len(names & {*re.findall(r"\w+", content)}) + 9 * bool(imports.search(content))
        if (within or named) and not test.startswith(APART if "jax" in path else (*APART, JAX)):
            ranked.append((-named - 2 * within, test))
    # Takes no time.
    return ["tests/test_public_interface.py", *(test for _, test in sorted(ranked)[:12])]


def copy_to(folder):
    shutil.rmtree(folder, ignore_errors=True)
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def killer(tree, original, tests, seconds):
    """Returns the test that fails in a changed copy and not in the original, "" if none does.

    What takes longer than `seconds`, for each of two rounds, is not waited for.
    """
    for chosen in ("not slow and not long", "long and not slow"):
        skipped: list[str] = []
        while found := failure(tree, ["-m", chosen, *tests, *skipped], seconds):
            if not failure(original, [found.partition("[")[0]], seconds):
                return found
            if len(skipped) == 5:
                break
            skipped.append(f"--deselect={found}")  # It fails in any copy, or the machine is busy.
    return ""


def failure(tree, arguments, seconds):
    """Returns the first test that fails in a copy, or cannot be imported there; "" without one."""
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", "-p", "no:cacheprovider", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = os.environ | {"PYTHONPATH": str(tree)}
    options |= {"cwd": tree, "env": environment, "start_new_session": True}
    process = subprocess.Popen(command, **options)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    start = "FAILED|ERROR|ImportError while loading conftest"
    found = re.findall(rf"^(?:{start}) '?(.+?)(?:'\.$| - |$)", output, re.MULTILINE)
    return found[0].removeprefix(f"{tree}/") if found else ""


def main(count, seed, seconds, workers):
    print(f"{count} mutants, MUTANTS_SEED={seed}", flush=True)
    # The last is changed by nobody, and has the lines as they were.
    *copies, original = (copy_to(BUILD / str(number)) for number in range(workers + 1))
    trees = queue.Queue()
    for each in copies:
        trees.put(each)

    def survives(mutant):
        path, operator, occurrence, line = mutant
        text = linecache.getline(str(original / path), line).strip()
        name = f"{path}:{line} {operator.removeprefix('core/')}: {text}"
        if reason := EQUIVALENT.get((path, text)):
            print(f"equivalent {name}\n           {reason}", flush=True)
            return None
        tree = trees.get()
        try:
            with use_mutation(tree / path, get_operator(operator)(), occurrence):
                found = killer(tree, original, near(tree, path), seconds)
        finally:
            trees.put(tree)
        end = f"killed     {name}\n           {found}" if found else f"SURVIVED   {name}"
        print(end, flush=True)
        return not found

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        results = [*pool.map(survives, mutants(original, seed)[:count])]
    killed, survived = results.count(False), results.count(True)
    print(f"{killed} of {killed + survived} killed, {killed / (killed + survived):.0%}")


if __name__ == "__main__":
    settings = {"MUTANTS": 60, "MUTANTS_SEED": 0, "MUTANT_SECONDS": 300, "WORKERS": 2}
    main(*(int(os.environ.get(name) or default) for name, default in settings.items()))
