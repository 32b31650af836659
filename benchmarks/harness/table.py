"""Markdown tables."""


def markdown(header, rows):
    """Returns a table, columns padded so that it also reads as plain text.

    Args:
        header: list of str.
        rows: list of lists of str. The first column is aligned left, others right.
    """
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    rule = ["-" * widths[0], *["-" * (width - 1) + ":" for width in widths[1:]]]

    def text(line):
        first, *others = zip(line, widths, strict=True)
        cells = [first[0].ljust(first[1]), *[cell.rjust(width) for cell, width in others]]
        return "| " + " | ".join(cells) + " |"

    return "\n".join(text(line) for line in [lines[0], rule, *lines[1:]])
