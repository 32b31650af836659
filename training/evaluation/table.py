"""A table of results, printed to the terminal or written as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """Column titles and rows of the same length; entries are shown as `str` gives them."""

    columns: Sequence[str]
    rows: Sequence[Sequence]
    title: str = ""

    def show(self) -> None:
        """Prints the table to the terminal."""
        import rich.console
        import rich.table

        table = rich.table.Table(title=self.title or None, title_justify="left")
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in self.rows:
            table.add_row(*map(str, row))
        rich.console.Console(markup=False, highlight=False).print(table)

    def markdown(self) -> str:
        """Returns a table of GitHub's Markdown, its title above it."""

        def line(cells):
            return "| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |"

        alignment = ("---", *("---:" for _ in self.columns[1:]))
        heading = [f"### {self.title}", ""] if self.title else []
        lines = [line(self.columns), line(alignment), *map(line, self.rows)]
        return "\n".join(heading + lines) + "\n"

    def csv(self) -> str:
        """Returns comma-separated values with a header line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()
