"""Hands models over: TF-Hub modules, TFLite files and official checkpoints, each verified.

```python
export.to_hub(model, directory, labels=None)
export.to_tflite(model, file, quantization="none", calibration=None, labels=None)
export.verify(model, path, images)
```

Images are RGB in [0, 1] in everything exported; the rescaling to the models' [-1, 1] is inside.
"""

import importlib

_HOMES = {
    "HubLayer": "export.hub.layer",
    "to_hub": "export.hub.module",
    "to_tflite": "export.tflite.convert",
    "verify": "export.verification.verifier",
}

__all__ = list(_HOMES)


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'export' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *__all__})
