"""What TensorBoard shows of a run: its files of events, cut back to where a run resumes."""

import os
import pathlib

import tensorflow as tf

from keras_vit.hidden_folder import remove_unfinished
from training.io.atomic import whole_file


def drop_after(folder: str | os.PathLike, step: int) -> None:
    """Drops the events after `step`, which the resumed run writes once more.

    Half an event that a killed process left at the end of a file goes with them.

    Args:
        folder: need not exist.
        step: number of updates done.
    """
    folder = pathlib.Path(folder)
    remove_unfinished(folder)
    for file in folder.glob("events.out.tfevents.*"):
        records, whole = _records(file)
        kept = [record for record in records if tf.compat.v1.Event.FromString(record).step <= step]
        if not whole or len(kept) < len(records):
            with whole_file(file) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
                for record in kept:
                    writer.write(record)


def _records(file):
    """Returns the records of a file, and whether that is all of it."""
    records = []
    try:
        for record in tf.data.TFRecordDataset(str(file)):
            records.append(record.numpy())
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError):
        return records, False
    return records, True
