"""TFLite models as trees of objects, unpacked, edited and packed in little memory."""

import hashlib

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

_SPARE_BYTES = 2**20


def unpack(content: bytes) -> schema.ModelT:
    """Returns the tree of a TFLite model; its weights are views of `content`.

    Weights that lie behind the model, where its buffers say, come back as if they lay in it.
    """
    tree = schema.ModelT.InitFromPackedBuf(content, 0)
    outside = np.frombuffer(content, np.uint8)
    for buffer in tree.buffers:
        if buffer.offset > 1:  # 0 and 1 stand for none
            buffer.data = outside[buffer.offset : buffer.offset + buffer.size]
        buffer.offset = buffer.size = 0
    tree.metadata = [entry for entry in tree.metadata or [] if entry.name != b"buffer_location"]
    return tree


def share_equal_weights(tree: schema.ModelT) -> None:
    """Makes the tensors with equal weights, such as those of several signatures, share them.

    Args:
        tree: changed in place.
    """
    first: dict[bytes, int] = {}
    replaced: dict[int, int] = {}
    used = {tensor.buffer for graph in tree.subgraphs for tensor in graph.tensors}
    for index in sorted(used):
        buffer = tree.buffers[index]
        if buffer.data is not None and len(buffer.data):
            original = first.setdefault(hashlib.sha256(buffer.data).digest(), index)
            if original != index:
                replaced[index] = original
                buffer.data = None
    for graph in tree.subgraphs:
        for tensor in graph.tensors:
            tensor.buffer = replaced.get(tensor.buffer, tensor.buffer)


def pack(tree: schema.ModelT) -> memoryview:
    """Returns the bytes of a tree."""
    weights = sum(len(buffer.data) for buffer in tree.buffers if buffer.data is not None)
    # Room for all of it from the start, and no copy of it at the end: a builder that grows
    # holds its content twice.
    builder = flatbuffers.Builder(weights + _SPARE_BYTES)
    builder.Finish(tree.Pack(builder), file_identifier=b"TFL3")
    return memoryview(builder.Bytes)[builder.Head() :]
