"""What one file can hold."""

import keras

from export.errors import ExportError

# Of a flatbuffer, which a TFLite file is, and of a protocol buffer, which an ONNX file is.
LIMIT = 2**31


def require_single_file(model: keras.Model) -> None:
    """Checks that a model's float32 weights fit into a TFLite or ONNX file.

    Raises:
        ExportError: if they do not.
    """
    size = 4 * model.count_params()
    if size >= LIMIT:
        raise ExportError(
            f"Expected weights of less than {LIMIT / 2**30:.0f} GiB, which is what a TFLite or an "
            f"ONNX file holds. Received: {size / 2**30:.1f} GiB. Export the model with "
            "export.to_hub, or take a smaller one."
        )
