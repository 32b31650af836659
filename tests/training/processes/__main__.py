"""`python -m tests.training.processes NAME …`: `main` of a file here, as quickly as a command."""

import gc
import importlib
import sys

# Keras's start without what it imports for pictures and wrappers takes a quarter less.
sys.modules.update(hidden := dict.fromkeys(("matplotlib", "sklearn")))
gc.disable()
import keras  # noqa: E402, F401

gc.freeze()
gc.enable()
for name in hidden:
    del sys.modules[name]
importlib.import_module(f"tests.training.processes.{sys.argv[1]}").main(*sys.argv[2:])
