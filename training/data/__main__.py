"""Lists, checks and prepares data sets: python -m training.data {list,check,prepare}."""

import argparse
import sys


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (
        ("list", "show the table of data sets and what is prepared"),
        ("check", "verify a prepared copy: sizes, classes, and up to 100 images decoded"),
        ("prepare", "download and write a data set"),
    ):
        sub = commands.add_parser(command, help=text, description=text)
        if command != "list":
            sub.add_argument("name", help="such as cifar10, vtab/dtd or tfds:name/config")
        sub.add_argument("--data_dir", default="", help="folder of prepared data sets")
        if command == "prepare":
            sub.add_argument("--manual_dir", default="", help="folder of files got by hand")
    args = vars(parser.parse_args(argv))

    from training.data import commands as room

    try:
        return getattr(room, f"{args.pop('command')}_command")(**args)
    except (ValueError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
