"""Hands models over: TF-Hub, TFLite, ONNX, web pages, Hugging Face; each is verified.

```python
export.to_hub(model, directory, labels=None)
export.to_tflite(model, file, quantization="none", calibration=None, labels=None)
export.to_onnx(model, file, labels=None)
export.to_web(model, directory, labels=None)
export.to_hugging_face(model, directory, library="transformers", labels=None)
export.verify(model, path, images)
```

Images are RGB in [0, 1] in everything exported; the rescaling to the models' [-1, 1] is inside.
"""

from typing import TYPE_CHECKING

from keras_vit.lazy_imports import door, import_when_used

if TYPE_CHECKING:
    from keras_vit.hub_layer import HubLayer

    from .hub.to_hub import to_hub
    from .hugging_face import to_hugging_face
    from .onnx.to_onnx import to_onnx
    from .tflite.to_tflite import to_tflite
    from .verification.verify import verify
    from .web.to_web import to_web

door(__name__, "keras_vit.export")

__getattr__ = import_when_used(
    "keras_vit.export",
    {
        "HubLayer": "keras_vit.hub_layer",
        "to_hub": ".hub.to_hub",
        "to_hugging_face": ".hugging_face",
        "to_onnx": ".onnx.to_onnx",
        "to_tflite": ".tflite.to_tflite",
        "to_web": ".web.to_web",
        "verify": ".verification.verify",
    },
)

__all__ = ["HubLayer", "to_hub", "to_hugging_face", "to_onnx", "to_tflite", "to_web", "verify"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
