"""`python -m training data`: lists, checks and prepares data sets."""

import os
import pathlib
import socket
import sys
import urllib.parse
from collections.abc import Mapping

import rich.console
import rich.progress
import rich.table

from training.command_options import CommandParser
from training.data import datasets, prepared
from training.errors import TrainingError
from training.exit_status import command_main

NUM_DECODED = 100


def list_command(data_dir: str | None = None) -> int:
    """Prints the table of data sets and which of them are in `data_dir`."""
    table = rich.table.Table(box=rich.box.SIMPLE)
    for column in ("name", "classes", "splits", "prepared", "source"):
        table.add_column(column, no_wrap=column != "splits")
    for spec in datasets.DATASETS.values():
        sizes = ", ".join(f"{name} {size:,}" for name, size in spec.sizes.items())
        table.add_row(
            spec.name, f"{spec.num_classes:,}", sizes, _state(spec, data_dir), spec.obtain
        )
    console = rich.console.Console()
    console.print(f"Data sets, looked up in {prepared.resolve_data_dir(data_dir)}")
    console.print(table)
    console.print("`python -m training data check NAME` says how to get what is missing.")
    console.print("Also: tfds:name/config:version (anything TFDS prepared there), folder:/path")
    return 0


def check_command(name: str, data_dir: str | None = None) -> int:
    """Verifies sizes and classes of a copy and decodes images spread over its splits."""
    spec = datasets.get(name, data_dir)
    if not spec.folder:
        found = datasets.locate(spec, data_dir)
        print(f"{name}: {found.name} {found.version} in {found.directory}")
        spec = spec.with_sizes(found.sizes)

    empty = [split for split, size in spec.sizes.items() if not size]
    for split, size in spec.sizes.items():
        print(f"  {split}: {size:,} examples")
    remedy = "Fill its folder or remove it." if spec.folder else "Prepare it again."
    problems = [
        f"{split} is empty: expected at least one image, found none. {remedy}" for split in empty
    ]
    chosen = _spread({split: n for split, n in spec.sizes.items() if n}, NUM_DECODED)
    seen, failures = _decode(name, data_dir, chosen)
    problems += failures
    outside = sorted(label for label in seen if not 0 <= label < spec.num_classes)
    if outside:
        problems.append(f"labels outside 0..{spec.num_classes - 1}: {outside}")
    print(f"  {spec.num_classes:,} classes, {len(seen)} of them among the images decoded")
    for problem in problems:
        print(f"  problem: {problem}")
    count = f"{len(chosen) - len(failures)} of {len(chosen)}" if failures else str(len(chosen))
    print(f"  {count} images decoded: {'all well' if not problems else 'see above'}")
    return 1 if problems else 0


def _decode(
    name: str, data_dir: str | None, chosen: list[tuple[str, int]]
) -> tuple[set[int], list[str]]:
    """Returns the classes among the images `chosen`, and what is wrong with those that fail."""
    import tensorflow as tf

    from training.data import random_access
    from training.data.preprocessing.preprocess import Preprocess

    splits = dict.fromkeys(split for split, _ in chosen)
    opened = {split: random_access.open_source(name, split, data_dir) for split in splits}
    decode = Preprocess("decode")
    seen, failures = set(), []
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(transient=True, console=console) as progress:
        for split, index in progress.track(chosen, description="decoding"):
            source = opened[split]
            try:
                example = source.read(tf.constant(index, tf.int64))
                decode(example["image"], (0, 0))
                seen.update(tf.reshape(example["label"], [-1]).numpy().tolist())
            except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
                failures.append(f"{split} {source.example_id(index)}: {error.message}")
    return seen, failures


def prepare_command(name: str, data_dir: str | None = None, manual_dir: str | None = None) -> int:
    """Downloads and writes the data set, then checks it."""
    row = None if name.startswith("tfds:") else datasets.get(name)
    builder_name = row.builder if row else name.removeprefix("tfds:")
    if builder_name == "sklearn_digits" or name.startswith("folder:"):
        return check_command(name, data_dir)
    import tensorflow_datasets as tfds

    folder = prepared.resolve_data_dir(data_dir)
    builder = tfds.builder(builder_name, data_dir=folder)
    if not builder.is_prepared():
        manual = pathlib.Path(manual_dir or folder / "downloads" / "manual")
        recipe = f" For {name}: {row.note}." if row and row.obtain == "manual" else ""
        unreachable = _unreachable_hosts(builder, manual)
        if unreachable:
            raise TrainingError(
                f"{', '.join(unreachable)} cannot be reached, so {builder_name} cannot be "
                f"downloaded. Check the network, or put its files into {manual} by hand." + recipe
            )
        config = tfds.download.DownloadConfig(manual_dir=manual_dir or None)
        try:
            builder.download_and_prepare(download_config=config)
        except AssertionError as error:
            # TFDS asserts that the files got by hand are there.
            raise TrainingError(f"{error}{recipe}") from error
    return check_command(name, data_dir)


def _spread(sizes: Mapping[str, int], total: int) -> list[tuple[str, int]]:
    """Returns at most `total` distinct (split, index), evenly over the splits and within each."""
    chosen = []
    for number, (split, size) in enumerate(sizes.items()):
        share = total // len(sizes) + (number < total % len(sizes))
        count = min(size, share)
        chosen += [(split, k * size // count) for k in range(count)]
    return chosen


def _state(spec: datasets.DatasetSpec, data_dir: str | None) -> str:
    try:
        found = prepared.find(spec.builder, spec.version, data_dir)
    except prepared.NotPreparedError:
        return "broken"
    return found.version if found else "-"


def _unreachable_hosts(builder, manual: pathlib.Path) -> list[str]:
    """Hosts of the builder's files that have no address here: TFDS would retry for minutes."""
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy")):
        return []
    at_hand = {file.name for file in manual.iterdir()} if manual.is_dir() else set()
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS and at_hand:
        # Some need only one of their archives; TFDS itself fails at once if none will do.
        return []
    hosts = {
        urllib.parse.urlsplit(url).hostname
        for url, info in builder.url_infos.items()
        if info.filename not in at_hand
    }
    return sorted(host for host in hosts if host and not _has_address(host))


def _has_address(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _parser():
    parser = CommandParser("python -m training data", "Lists, checks and prepares data sets.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (
        ("list", "show the table of data sets and what is prepared"),
        ("check", "verify a prepared copy: sizes, classes, and up to 100 images decoded"),
        ("prepare", "download and write a data set"),
    ):
        sub = commands.add_parser(command, help=text, description=text)
        if command != "list":
            sub.add_argument("name", help="such as cifar10, vtab/dtd or tfds:name/config")
        sub.add_data_dir()
        if command == "prepare":
            sub.add_argument("--manual_dir", metavar="DIR", help="folder of files got by hand")
    return parser


def _run(options):
    run = {"list": list_command, "check": check_command, "prepare": prepare_command}
    settings = vars(options)
    return run[settings.pop("command")](**settings)


main = command_main(_parser, _run)

if __name__ == "__main__":
    sys.exit(main())
