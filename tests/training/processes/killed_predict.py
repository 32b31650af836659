"""`predict`, killed in the middle of writing its third shard: ARGUMENTS."""

import os
import signal
import sys

import pyarrow.parquet

from keras_vit.training.commands import predict

write_table, written = pyarrow.parquet.write_table, []


def half(table, file):
    write_table(table, file)
    written.append(file)
    if len(written) == 3:
        os.truncate(file, os.path.getsize(file) // 2)
        os.kill(os.getpid(), signal.SIGKILL)


pyarrow.parquet.write_table = half
sys.exit(predict.main(sys.argv[1:]))
