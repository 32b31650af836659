"""A table of results, printed to the terminal or written as Markdown and CSV."""

import csv
import io
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

_FORMULA = re.compile(r"[=@\t\r+-]")
# A terminal would obey those in the name of a file.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_SIGNED_NUMBER = re.compile(r"[+-][\d.,]+(e[+-]?\d+)?( ?%)?( ± [\d.]+)?")


def _inert(cell):
    is_formula = isinstance(cell, str) and _FORMULA.match(cell)
    return f"'{cell}" if is_formula and not _SIGNED_NUMBER.fullmatch(cell) else cell


class Table(NamedTuple):
    """Column titles and rows of the same length; entries are shown as `str` gives them."""

    columns: Sequence[str]
    rows: Sequence[Sequence]
    title: str = ""

    def show(self, wrapped: Collection[str] = ()) -> None:
        """Prints the table to the terminal; of a narrow one, only columns `wrapped` break lines."""
        import rich.console
        import rich.table

        table = rich.table.Table(title=self.title or None, title_justify="left")
        for column, is_number in zip(self.columns, self._numeric(), strict=True):
            table.add_column(
                column, justify="right" if is_number else "left", no_wrap=column not in wrapped
            )
        for row in self.rows:
            table.add_row(*(_CONTROLS.sub("?", str(cell)) for cell in row))
        console = rich.console.Console(markup=False, highlight=False, emoji=False)
        if not console.is_terminal:
            # A file or pipe has no width to keep to.
            console.width = 240
        with console.capture() as text:
            console.print(table)
        # Rich would end the process where the reader of a pipe has left.
        print(text.get(), end="")

    def markdown(self) -> str:
        """Returns a table of GitHub's Markdown, its title above it."""

        def line(cells):
            return "| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |"

        alignment = ("---:" if is_number else "---" for is_number in self._numeric())
        heading = [f"### {self.title}", ""] if self.title else []
        lines = [line(self.columns), line(alignment), *map(line, self.rows)]
        return "\n".join(heading + lines) + "\n"

    def csv(self) -> str:
        """Returns comma-separated values with a header line.

        A text that a spreadsheet would run as a formula begins with an apostrophe.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([_inert(cell) for cell in row] for row in (self.columns, *self.rows))
        return text.getvalue()

    def _numeric(self):
        """For each column, whether its entries are numbers, or missing."""
        return [
            all(str(row[i])[:1] in "0123456789-+–" for row in self.rows)
            for i in range(len(self.columns))
        ]
