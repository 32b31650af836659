"""Prepares a data set: TFDS downloads it and writes it as TFRecord files."""

import os
import pathlib
import socket
import urllib.parse
from collections.abc import Sequence
from typing import Any

from training.data import dataset_lookup, tfds_folder
from training.data.beam_options import pipeline_options
from training.errors import TrainingError


def prepare(
    name: str,
    data_dir: str | None = None,
    manual_dir: str | None = None,
    beam_options: Sequence[str] = (),
) -> None:
    """Downloads and writes a data set unless it is there or needs no preparation.

    Args:
        name: of a data set, see `training.data.dataset_lookup`.
        data_dir: folder of prepared data sets; empty or None is the default of TFDS.
        manual_dir: folder of files got by hand; by default `downloads/manual` in `data_dir`.
        beam_options: flags of Apache Beam, such as "--runner=DataflowRunner", for sets that TFDS
            writes on many machines; empty runs on this one.

    Raises:
        UsageError: for `beam_options` without Apache Beam.
        ValueError: for an unknown name.
        TrainingError: if a server cannot be reached, or files to be got by hand are missing.
    """
    options = pipeline_options(beam_options)
    row = None if name.startswith("tfds:") else dataset_lookup.get(name)
    if row and row.obtain == "embedded":
        return
    import tensorflow_datasets as tfds

    builder_name = row.builder if row else name.removeprefix("tfds:")
    folder = tfds_folder.resolve_data_dir(data_dir)
    builder = tfds.builder(builder_name, data_dir=folder)
    if builder.is_prepared():
        return
    manual = pathlib.Path(manual_dir or folder / "downloads" / "manual")
    recipe = f" For {name}: {row.note}." if row and row.obtain == "manual" else ""
    unreachable = _unreachable_hosts(builder, manual)
    if unreachable:
        raise TrainingError(
            f"{', '.join(unreachable)} cannot be reached, so {builder_name} cannot be "
            f"downloaded. Check the network, or put its files into {manual} by hand." + recipe
        )
    config = tfds.download.DownloadConfig(manual_dir=manual_dir or None, beam_options=options)
    try:
        builder.download_and_prepare(download_config=config)
    except AssertionError as error:
        # TFDS asserts that the files got by hand are there.
        raise TrainingError(f"{error}{recipe}") from error


def _unreachable_hosts(builder: Any, manual: pathlib.Path) -> list[str]:
    """Hosts of the builder's files that have no address here: TFDS would retry for minutes."""
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy")):
        return []
    at_hand = {file.name for file in manual.iterdir()} if manual.is_dir() else set()
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS and at_hand:
        # Some need only one of their archives; TFDS itself fails at once if none will do.
        return []
    hosts = {
        urllib.parse.urlsplit(url).hostname
        for url, info in (builder.url_infos or {}).items()
        if info.filename not in at_hand
    }
    return sorted(host for host in hosts if host and not _has_address(host))


def _has_address(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True
