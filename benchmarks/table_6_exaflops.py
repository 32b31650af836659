"""`python -m benchmarks table_6_exaflops`: the compute column of Table 6 beside ours."""

from collections.abc import Callable, Sequence
from typing import Any

import keras_vit
from benchmarks.harness import options
from training import paper_tables
from training.reporting.table import Table

NOTES = """\
GMACs: per image at 224 pixels, every token in every block, padding not read.
executed: what the graph multiplies; its last block serves the class token alone.
exaFLOPs: 2 per MAC, 3 passes per step, epochs x 303 million images."""


def rows() -> list[dict[str, Any]]:
    """Returns the rows of Table 6, each with our count of the same model."""
    result = []
    for (model, epochs), published in paper_tables.TABLE_6_EXAFLOPS.items():
        counted = keras_vit.costs(model, num_classes=None)
        exaflops = counted.exaflops(epochs * paper_tables.UPSTREAM_IMAGES["jft"])
        result.append(
            {
                "model": model,
                "epochs": epochs,
                "parameters": counted.parameters,
                "gmacs": counted.macs / 1e9,
                "executed_gmacs": counted.executed_macs / 1e9,
                "exaflops": exaflops,
                "paper": published,
                "error": exaflops / published - 1,
                "misprint": paper_tables.TABLE_6_MISPRINTS.get((model, epochs), ""),
            }
        )
    return result


# How the columns of `rows` are shown.
_SHOWN: dict[str, tuple[str, Callable[[Any], str]]] = {
    "model": ("model", str),
    "epochs": ("epochs", str),
    "parameters": ("parameters", lambda count: f"{count / 1e6:.1f}M"),
    "gmacs": ("GMACs", "{:.2f}".format),
    "executed_gmacs": ("executed", "{:.2f}".format),
    "exaflops": ("exaFLOPs", "{:.1f}".format),
    "paper": ("Table 6", str),
    "error": ("error", "{:.2%}".format),
    "misprint": ("misprint", str),
}


def main(argv: Sequence[str]) -> int:
    """Prints the table, or with a model's name that model's cost by layer type."""
    parser = options.parser("table_6_exaflops", __doc__, image_size=224)
    parser.add_argument("model", nargs="?", help="a name, for that model's cost by layer type")
    parser.add_argument("--csv", action="store_true", help="print Table 6 as CSV")
    chosen = parser.parse_args(argv)
    if chosen.model:
        try:
            print(keras_vit.costs(chosen.model, image_size=chosen.image_size))
        except ValueError as error:
            parser.exit(2, f"{error}\n")
    elif chosen.csv:
        counted = rows()
        print(Table(list(counted[0]), [list(row.values()) for row in counted]).csv(), end="")
    else:
        titles = [title for title, _ in _SHOWN.values()]
        cells = [[show(row[key]) for key, (_, show) in _SHOWN.items()] for row in rows()]
        print(Table(titles, cells).markdown())
        print(NOTES)
    return 0
