"""The interface of a TFLite file as MediaPipe and Android's task libraries read it.

Their metadata are a flatbuffer of its own, identified by "M001". It lies in one of the model's
buffers and describes the input (RGB, how to normalize pixels) and the output; the class names
follow the model as a zip archive at the end of the file.
"""

import os
import zipfile
from collections.abc import Mapping

import flatbuffers
import flatbuffers.table
import numpy as np

from keras_vit.training.inference.interface import LABELS_FILE, Interface

from .flatbuffer import add_buffer, schema

# The numbers are field positions and values of the published schema 1.5.
_METADATA, _PARSER_VERSION = "TFLITE_METADATA", "1.0.0"
# Masks have a flatbuffer of their own, whose one field says what to compute of the output.
_SEGMENTER, _ACTIVATIONS = "SEGMENTER_METADATA", {"none": 0, "sigmoid": 1, "softmax": 2}
_IMAGE_PROPERTIES, _RGB, _NORMALIZATION_OPTIONS, _TENSOR_AXIS_LABELS = 2, 1, 1, 2
_SCORE_THRESHOLDING_OPTIONS = 3


def add_metadata(tree: schema.ModelT, name: str, interface: Interface) -> None:
    """Gives a TFLite model the buffer of metadata, which describes its main signature.

    Changes `tree` in place; `name` is that of the model.
    """
    content = _description(name, interface)
    buffer = add_buffer(tree, np.frombuffer(content, np.uint8))
    tree.metadata = [*(tree.metadata or []), schema.MetadataT(_METADATA, buffer)]


def metadata_of(tree: schema.ModelT) -> bytes:
    """Returns the buffer of metadata of a TFLite model, b"" if it has none or several."""
    found = [entry.buffer for entry in tree.metadata if entry.name == _METADATA.encode()]
    return bytes(tree.buffers[found[0]].data) if len(found) == 1 else b""


def is_metadata(content: bytes, interface: Interface) -> bool:
    """Returns whether a buffer is what `add_metadata` writes, the model's name aside."""
    table = flatbuffers.table.Table(content, int.from_bytes(content[:4], "little"))
    name = table.String(table.Pos + table.Offset(4)).decode()
    return content == _description(name, interface)


def _description(name, interface):
    normalization = {0: [0.0], 1: [255.0]}  # mean, standard deviation
    image = {
        0: "image",
        1: "RGB image, values in [0, 1].",
        3: {0: _IMAGE_PROPERTIES, 1: {0: _RGB}},
        4: [{0: _NORMALIZATION_OPTIONS, 1: normalization}],
        5: {0: [1.0], 1: [0.0]},  # largest and smallest pixel
    }
    result: dict[int, object] = {0: interface.output}
    if interface.class_names:
        result[6] = [{0: LABELS_FILE, 2: _TENSOR_AXIS_LABELS}]
    if interface.thresholds and interface.output == "probabilities":
        # One for all classes: a class of a higher one may be listed, and none is lost.
        least = {0: float(np.float32(min(interface.thresholds)))}
        result[4] = [{0: _SCORE_THRESHOLDING_OPTIONS, 1: least}]
    text = "Vision model. Input: RGB image in [0, 1]. How a photo becomes one: "
    text += interface.preprocessing
    graph: dict[int, object] = {2: [image], 3: [result]}
    if interface.classifies == "pixel":
        options = _flatbuffer({0: _ACTIVATIONS[interface.applied or "none"]}, b"V001")
        graph[9] = [{0: _SEGMENTER, 1: options}]
    return _flatbuffer({0: name, 1: text, 3: [graph], 7: _PARSER_VERSION}, b"M001")


def _flatbuffer(table, identifier):
    builder = flatbuffers.Builder(1024)
    builder.Finish(_write(builder, table), file_identifier=identifier)
    return bytes(builder.Output())


def _write(builder, value):
    """Writes text, bytes, a list of floats or tables, or a table, and returns its offset.

    A table is {position of a field: value}, where an int is an enumeration of one byte, and a float
    stands in the table itself.
    """
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, bytes):
        return builder.CreateByteVector(value)
    if isinstance(value, list) and isinstance(value[0], float):
        return builder.CreateNumpyVector(np.array(value, "float32"))
    if isinstance(value, list):
        entries = [_write(builder, each) for each in value]
        builder.StartVector(4, len(entries), 4)
        for entry in reversed(entries):
            builder.PrependUOffsetTRelative(entry)
        return builder.EndVector()
    enums = {position: each for position, each in value.items() if isinstance(each, int)}
    floats = {position: each for position, each in value.items() if isinstance(each, float)}
    others = value.keys() - enums.keys() - floats.keys()
    offsets = {position: _write(builder, value[position]) for position in others}
    builder.StartObject(max(value) + 1)
    for position, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(position, offset, 0)
    for position, each in floats.items():
        builder.PrependFloat32Slot(position, each, 0.0)
    for position, each in enums.items():
        builder.PrependUint8Slot(position, each, 0)
    return builder.EndObject()


def append_texts(path: str | os.PathLike, texts: Mapping[str, str]) -> None:
    """Appends to a TFLite file a zip archive of texts, such as its labels, by their names."""
    # Opened here: an archive that cannot open its file to append makes an empty one in its place.
    with open(path, "r+b") as file, zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        for name, text in texts.items():
            # A fixed date keeps equal exports equal.
            archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), text)
