"""Options of Apache Beam, with which TFDS writes a set on many machines."""

from collections.abc import Sequence
from typing import Any

from training.errors import UsageError


def pipeline_options(flags: Sequence[str]) -> Any:
    """Returns Beam's options of flags such as "--runner=DataflowRunner"; None without flags.

    Raises:
        UsageError: if there are flags and no Apache Beam.
    """
    if not flags:
        return None
    try:
        from apache_beam.options import pipeline_options as options
    except ModuleNotFoundError as error:
        raise UsageError(
            "--beam needs Apache Beam, which is not installed: pip install apache-beam"
        ) from error
    return options.PipelineOptions(flags=list(flags))
