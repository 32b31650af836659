"""Writes one contestant's files: `python -m benchmarks.tflite_exporters NAME ARCHITECTURE FOLDER`.

Each contestant is exported by its own library, in a process of its own, in the way that its
documentation describes, from random weights. A folder gets `float32.tflite` or `.onnx`, and
`int8.tflite` or `.onnx` where the library quantises. ARCHITECTURE is JSON, the arguments of
`keras_vit.VisionTransformer`: PyTorch's processes must not import Keras on TensorFlow, as the two
link different versions of LLVM.
"""

import importlib.util
import json
import pathlib
import sys

CLASSES = 1000
IMAGE_SIZE = 224


def keras_vit_files(architecture, folder):
    """This package."""
    import export

    model = _keras_vit_model(architecture)
    export.to_tflite(model, folder / "float32.tflite", quantization="none")
    export.to_tflite(model, folder / "int8.tflite", quantization="dynamic")


def keras_vit_static_files(architecture, folder):
    """This package, with activations calibrated on noise, which times like any images."""
    import numpy as np

    import export

    model = _keras_vit_model(architecture)
    shape = (4, IMAGE_SIZE, IMAGE_SIZE, 3)
    noise = np.random.default_rng(0).uniform(0, 1, shape).astype("float32")
    export.to_tflite(model, folder / "int8.tflite", quantization="int8", calibration=noise)


def keras_hub_files(architecture, folder):
    """keras-hub's `export`, as it is called without further arguments."""
    model = _keras_hub_model(architecture)
    model.export(str(folder / "float32.tflite"), format="litert", verbose=False)


def keras_hub_static_files(architecture, folder):
    """keras-hub's `export` for one image, and LiteRT's quantizer."""
    import keras
    from ai_edge_quantizer import quantizer, recipe

    model = _keras_hub_model(architecture)
    file = folder / "float32.tflite"
    signature = [keras.InputSpec(shape=(1, IMAGE_SIZE, IMAGE_SIZE, 3), dtype="float32")]
    model.export(str(file), format="litert", verbose=False, input_signature=signature)
    tool = quantizer.Quantizer(str(file), recipe.dynamic_wi8_afp32())
    (folder / "int8.tflite").write_bytes(tool.quantize().quantized_model)


def timm_onnx_files(architecture, folder):
    """timm's model through torch.onnx, and ONNX Runtime's dynamic quantisation."""
    import torch
    from onnxruntime import quantization

    model = _timm_model(architecture)
    image = torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE)
    file = folder / "float32.onnx"
    names = {"input_names": ["image"], "output_names": ["logits"]}
    torch.onnx.export(model, (image,), str(file), dynamo=False, opset_version=17, **names)
    quantization.quantize_dynamic(
        file, folder / "int8.onnx", weight_type=quantization.QuantType.QInt8
    )


def timm_litert_files(architecture, folder):
    """timm's model through litert-torch, and LiteRT's quantizer."""
    import litert_torch
    import torch
    from ai_edge_quantizer import quantizer, recipe

    image = torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE)
    file = folder / "float32.tflite"
    litert_torch.convert(_timm_model(architecture), (image,)).export(str(file))
    tool = quantizer.Quantizer(str(file), recipe.dynamic_wi8_afp32())
    (folder / "int8.tflite").write_bytes(tool.quantize().quantized_model)


EXPORTERS = {
    "keras-vit": keras_vit_files,
    "keras-vit, calibrated": keras_vit_static_files,
    "keras-hub": keras_hub_files,
    "keras-hub, one image": keras_hub_static_files,
    "timm, ONNX Runtime": timm_onnx_files,
    "timm, litert-torch": timm_litert_files,
}
# What each imports, for a message before anything runs.
PACKAGES = {
    "keras-vit": ("ai_edge_quantizer",),
    "keras-vit, calibrated": ("ai_edge_quantizer",),
    "keras-hub": ("keras_hub",),
    "keras-hub, one image": ("keras_hub", "ai_edge_quantizer"),
    "timm, ONNX Runtime": ("timm", "torch", "onnx", "onnxruntime"),
    "timm, litert-torch": ("timm", "torch", "litert_torch", "ai_edge_quantizer"),
}


def missing_packages(name):
    """Returns the packages that a contestant needs and that are not installed."""
    return [p for p in PACKAGES[name] if importlib.util.find_spec(p) is None]


def _keras_vit_model(architecture):
    import keras

    import keras_vit

    keras.utils.set_random_seed(0)
    return keras_vit.VisionTransformer(**architecture, num_classes=CLASSES, image_size=IMAGE_SIZE)


def _keras_hub_model(a):
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(IMAGE_SIZE, IMAGE_SIZE, 3),
        patch_size=a["patch_size"],
        num_layers=a["num_layers"],
        num_heads=a["num_heads"],
        hidden_dim=a["hidden_size"],
        mlp_dim=a["mlp_dim"],
    )
    return keras_hub.models.ViTImageClassifier(backbone, CLASSES)


def _timm_model(a):
    import timm.models.vision_transformer as vision_transformer
    import torch

    torch.manual_seed(0)
    return vision_transformer.VisionTransformer(
        img_size=IMAGE_SIZE,
        patch_size=a["patch_size"],
        embed_dim=a["hidden_size"],
        depth=a["num_layers"],
        num_heads=a["num_heads"],
        mlp_ratio=a["mlp_dim"] / a["hidden_size"],
        num_classes=CLASSES,
    ).eval()


if __name__ == "__main__":
    contestant, text, target = sys.argv[1:]
    EXPORTERS[contestant](json.loads(text), pathlib.Path(target))
