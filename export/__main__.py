"""`python -m keras_vit.export COMMAND`, the same as `keras-vit export COMMAND`."""

import runpy
import sys

sys.argv[1:1] = ["export"]
runpy.run_module("keras_vit", run_name="__main__", alter_sys=True)
