"""Hands models over: TF-Hub, TFLite, ONNX, web pages, official checkpoints; each is verified.

```python
export.to_hub(model, directory, labels=None)
export.to_tflite(model, file, quantization="none", calibration=None, labels=None)
export.to_onnx(model, file, labels=None)
export.to_web(model, directory, labels=None)
export.verify(model, path, images)
```

Images are RGB in [0, 1] in everything exported; the rescaling to the models' [-1, 1] is inside.
"""

import importlib
from typing import Any

_HOMES = {
    "HubLayer": "export.hub.hub_layer",
    "to_hub": "export.hub.to_hub",
    "to_onnx": "export.onnx.to_onnx",
    "to_tflite": "export.tflite.to_tflite",
    "to_web": "export.web.to_web",
    "verify": "export.verification.verify",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'export' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
