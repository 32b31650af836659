"""The metadata of TFLite files that MediaPipe and Android's task libraries read.

A flatbuffer of its own, identified by "M001", lies in one of the model's buffers
and describes the input (RGB, how to normalize pixels) and the output; the class
names follow the model as a zip archive at the end of the file. The numbers below
are field positions of the published metadata schema 1.2.
"""

import os
import zipfile
from collections.abc import Mapping, Sequence

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

LABELS_FILE = "labels.txt"
BUFFER_NAME = "TFLITE_METADATA"
PARSER_VERSION = "1.0.0"

IMAGE_PROPERTIES = 2
RGB = 1
NORMALIZATION_OPTIONS = 1
TENSOR_AXIS_LABELS = 2


def add_metadata(
    tree: schema.ModelT,
    name: str,
    description: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    labels: bool,
    signatures: Mapping[str, str],
) -> None:
    """Gives a TFLite model the metadata buffer and its signatures' final names.

    Args:
        tree: changed in place.
        name: of the model.
        description: of the model.
        inputs: names of the first subgraph's inputs, images with pixels in [0, 1].
        outputs: names of its outputs.
        labels: whether labels.txt names the entries of the outputs.
        signatures: from the present to the final names of signatures.
    """
    for definition in tree.signatureDefs:
        definition.signatureKey = signatures[definition.signatureKey.decode()]
    buffer = schema.BufferT()
    buffer.data = list(_metadata(name, description, inputs, outputs, labels))
    entry = schema.MetadataT()
    entry.name = BUFFER_NAME
    entry.buffer = len(tree.buffers)
    tree.buffers.append(buffer)
    tree.metadata = [*(tree.metadata or []), entry]


def append_texts(path: str | os.PathLike, texts: Mapping[str, str]) -> None:
    """Appends to a TFLite file a zip archive of texts, such as its labels, by their names."""
    # Opened here: an archive that cannot open its file to append makes an empty one in its place.
    with open(path, "r+b") as file, zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        for name, text in texts.items():
            # A fixed date keeps equal exports equal.
            archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), text)


def _metadata(name, description, inputs, outputs, labels):
    builder = flatbuffers.Builder(1024)
    input_entries = [_input(builder, each) for each in inputs]
    output_entries = [_output(builder, each, labels) for each in outputs]
    subgraph = _table(
        builder,
        {2: _vector(builder, input_entries), 3: _vector(builder, output_entries)},
    )
    fields = {
        0: builder.CreateString(name),
        1: builder.CreateString(description),
        3: _vector(builder, [subgraph]),
        7: builder.CreateString(PARSER_VERSION),
    }
    builder.Finish(_table(builder, fields), file_identifier=b"M001")
    return bytes(builder.Output())


def _input(builder, name):
    normalization = _table(builder, {0: _floats(builder, [0.0]), 1: _floats(builder, [255.0])})
    unit = _table(builder, {1: normalization}, {0: NORMALIZATION_OPTIONS})
    image = _table(builder, {}, {0: RGB})
    content = _table(builder, {1: image}, {0: IMAGE_PROPERTIES})
    stats = _table(builder, {0: _floats(builder, [1.0]), 1: _floats(builder, [0.0])})
    fields = {
        0: builder.CreateString(name),
        1: builder.CreateString("RGB image, values in [0, 1]."),
        3: content,
        4: _vector(builder, [unit]),
        5: stats,
    }
    return _table(builder, fields)


def _output(builder, name, labels):
    fields = {0: builder.CreateString(name)}
    if labels:
        file = {0: builder.CreateString(LABELS_FILE)}
        entry = _table(builder, file, {2: TENSOR_AXIS_LABELS})
        fields[6] = _vector(builder, [entry])
    return _table(builder, fields)


def _table(builder, offsets, enums=None):
    """Writes a table of references and of one-byte enumerations, by field position."""
    enums = enums or {}
    builder.StartObject(max([*offsets, *enums], default=-1) + 1)
    for position, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(position, offset, 0)
    for position, value in enums.items():
        builder.PrependUint8Slot(position, value, 0)
    return builder.EndObject()


def _vector(builder, offsets):
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()


def _floats(builder, values):
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependFloat32(value)
    return builder.EndVector()
