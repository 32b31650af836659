"""The metadata of TFLite files that MediaPipe and Android's task libraries read.

A flatbuffer of its own, identified by "M001", lies in one of the model's buffers and describes the
input (RGB, how to normalize pixels) and the output; the class names follow the model as a zip
archive at the end of the file. The numbers below are field positions and values of the published
metadata schema 1.2.
"""

import os
import zipfile
from collections.abc import Mapping

import flatbuffers
import numpy as np

from keras_vit.export.tflite.flatbuffer import add_buffer, schema
from keras_vit.training.evaluators.exported_files import LABELS_FILE

BUFFER_NAME = "TFLITE_METADATA"
PARSER_VERSION = "1.0.0"

IMAGE_PROPERTIES = 2
RGB = 1
NORMALIZATION_OPTIONS = 1
TENSOR_AXIS_LABELS = 2


def add_metadata(
    tree: schema.ModelT, name: str, description: str, output: str, labels: bool
) -> None:
    """Gives a TFLite model the buffer of metadata, which describes its main signature.

    Args:
        tree: changed in place; its first subgraph takes `image`, with pixels in [0, 1].
        name: of the model.
        description: of the model.
        output: name of the first subgraph's output.
        labels: whether labels.txt names the entries of the output.
    """
    normalization = {0: [0.0], 1: [255.0]}  # mean, standard deviation
    image = {
        0: "image",
        1: "RGB image, values in [0, 1].",
        3: {0: IMAGE_PROPERTIES, 1: {0: RGB}},
        4: [{0: NORMALIZATION_OPTIONS, 1: normalization}],
        5: {0: [1.0], 1: [0.0]},  # largest and smallest pixel
    }
    result: dict[int, object] = {0: output}
    if labels:
        result[6] = [{0: LABELS_FILE, 2: TENSOR_AXIS_LABELS}]
    content = {0: name, 1: description, 3: [{2: [image], 3: [result]}], 7: PARSER_VERSION}
    builder = flatbuffers.Builder(1024)
    builder.Finish(_write(builder, content), file_identifier=b"M001")
    buffer = add_buffer(tree, np.frombuffer(builder.Output(), np.uint8))
    tree.metadata = [*(tree.metadata or []), schema.MetadataT(BUFFER_NAME, buffer)]


def _write(builder, value):
    """Writes text, a list of floats or tables, or a table, and returns its offset.

    A table is {position of a field: value}, where an int is an enumeration of one byte.
    """
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list) and isinstance(value[0], float):
        return builder.CreateNumpyVector(np.array(value, "float32"))
    if isinstance(value, list):
        entries = [_write(builder, each) for each in value]
        builder.StartVector(4, len(entries), 4)
        for entry in reversed(entries):
            builder.PrependUOffsetTRelative(entry)
        return builder.EndVector()
    enums = {position: each for position, each in value.items() if isinstance(each, int)}
    offsets = {position: _write(builder, value[position]) for position in value.keys() - enums}
    builder.StartObject(max(value) + 1)
    for position, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(position, offset, 0)
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
