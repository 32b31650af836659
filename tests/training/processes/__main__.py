"""`python -m tests.training.processes SCRIPT …`: a script that starts as quickly as a command."""

import gc
import runpy
import sys

# Keras's start without what it imports for pictures and wrappers takes a quarter less.
sys.modules.update(hidden := dict.fromkeys(("matplotlib", "sklearn")))
gc.disable()
import keras  # noqa: E402, F401

gc.freeze()
gc.enable()
for name in hidden:
    del sys.modules[name]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
