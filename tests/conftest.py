import gc
import os
import sys

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers are the parallelism: more threads would only wait for each other.
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if "XLA_FLAGS" not in os.environ:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


@pytest.fixture(autouse=True, scope="module")
def release_memory():
    """Frees the graphs of a module's models, which Keras would keep to the end of the session."""
    # What was imported stays: collections, Keras's own among them, need not walk through it.
    gc.freeze()
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
    gc.collect()
