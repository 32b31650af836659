import gc
import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def release_memory():
    """Frees the graphs of a module's models, which Keras would keep to the end of the session."""
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
    gc.collect()
