"""The runtimes of exported files, by the names of `--runtime`, and the format that each opens.

Commands name them before TensorFlow is imported.
"""

SAVED_MODEL = "the directory of a SavedModel or its .tar.gz"
TFLITE, NPZ, ONNX = "a .tflite file", "an .npz checkpoint", "an .onnx file"
# The first that opens a format is the format's default.
TRANSFORMERS, TIMM = "a folder of transformers", "a folder of timm"
RUNTIMES = {
    "hub": SAVED_MODEL,
    "keras": NPZ,
    "interpreter": TFLITE,
    "compiled": TFLITE,
    "gpu": TFLITE,
    "openvino": TFLITE,
    "mediapipe": TFLITE,
    "browser": TFLITE,
    "browser-gpu": TFLITE,
    "onnx": ONNX,
    "transformers": TRANSFORMERS,
    "timm": TIMM,
}
