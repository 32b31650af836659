"""`python -m keras_vit.training COMMAND`, the same as `keras-vit COMMAND`."""

import runpy

runpy.run_module("keras_vit", run_name="__main__", alter_sys=True)
