"""The data of a run that a command's options name."""

import argparse
from typing import Any

from keras_vit.checkpoints.model_source import model_source

from ..data import Dataset, Split, open_data_of_run
from ..errors import UsageError
from ..io.paths import any_path
from ..source_facts import read_run_config, runs_inside


def own_config(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the config of the run SOURCE; raises `UsageError` if it is no run directory."""
    source = model_source(any_path(options.source))
    file = source.run_config
    if file is None:
        raise UsageError(
            "Expected a run directory, which knows its own data, or --dataset=NAME. "
            f"Received: {options.source}, {source.kind.value}{runs_inside(source.path)}."
        )
    return read_run_config(file)


def own_data(options: argparse.Namespace) -> tuple[Dataset, dict[str, Any]]:
    """Opens the data set that the run SOURCE was trained on; returns it and the run's config.

    --data_dir names the folder of its data; if it is not given, it becomes the folder of the run's
    config. Raises as `own_config`, and `NotPreparedError` if the data is gone.
    """
    config = own_config(options)
    options.data_dir = options.data_dir or config["data_dir"]
    return open_data_of_run(options.source, config, options.data_dir), config


def own_split(options: argparse.Namespace) -> Split:
    """Opens --split of the data of `own_data`; by default the split of the run's evaluation."""
    dataset, config = own_data(options)
    return dataset.split(options.split or config["eval_split"] or config["train_split"])
