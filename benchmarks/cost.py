"""`python -m benchmarks cost`: the compute column of Table 6 beside ours."""

import argparse
import csv
import sys


def table():
    """Returns the rows of Table 6 as dicts: model, epochs, gmacs, exaflops, paper, error, note."""
    import keras_vit
    from keras_vit.analysis.table_6 import JFT_IMAGES, TABLE_6

    rows = []
    for row in TABLE_6:
        counted = keras_vit.costs(row.name, num_classes=None)
        exaflops = counted.exaflops(row.epochs * JFT_IMAGES)
        rows.append(
            {
                "model": row.name,
                "epochs": row.epochs,
                "parameters": counted.parameters,
                "gmacs": counted.macs / 1e9,
                "executed_gmacs": counted.executed_macs / 1e9,
                "exaflops": exaflops,
                "paper": row.exaflops,
                "error": exaflops / row.exaflops - 1,
                "misprint": row.misprint,
            }
        )
    return rows


def text(rows):
    """Returns the rows of `table` as lines of a table for the terminal."""
    lines = [
        f"{'model':14}{'epochs':>7}{'parameters':>13}{'GMACs':>9}{'executed':>10}"
        f"{'exaFLOPs':>10}{'Table 6':>9}{'error':>8}"
    ]
    for row in rows:
        mark = f"  misprint: {row['misprint']}" if row["misprint"] else ""
        lines.append(
            f"{row['model']:14}{row['epochs']:7}{row['parameters'] / 1e6:12.1f}M"
            f"{row['gmacs']:9.2f}{row['executed_gmacs']:10.2f}{row['exaflops']:10.1f}"
            f"{row['paper']:9}{row['error']:8.2%}{mark}"
        )
    lines += [
        "",
        "GMACs: per image at 224 pixels, every token in every block, padding not read.",
        "executed: what the graph multiplies; its last block serves the class token alone.",
        "exaFLOPs: 2 per MAC, 3 passes per step, epochs x 303 million images.",
    ]
    return "\n".join(lines)


def main(argv=None):
    """Prints the table, or with a model's name that model's cost by layer type."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cost", description=__doc__)
    parser.add_argument("model", nargs="?", help="a model's name, for its cost by layer type")
    parser.add_argument("--image-size", type=int, default=224, help="of that model, in pixels")
    parser.add_argument("--csv", action="store_true", help="print Table 6 as CSV")
    arguments = parser.parse_args(argv)
    if arguments.model:
        import keras_vit

        try:
            print(keras_vit.costs(arguments.model, image_size=arguments.image_size))
        except ValueError as error:
            parser.exit(2, f"{error}\n")
    elif arguments.csv:
        rows = table()
        writer = csv.DictWriter(sys.stdout, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        print(text(table()))


if __name__ == "__main__":
    main()
