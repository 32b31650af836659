import numpy as np
from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.tflite.flatbuffer import pack, share_equal_weights, unpack


def tree_of(*weights):
    buffers = [schema.BufferT(), *(schema.BufferT(np.frombuffer(w, np.uint8)) for w in weights)]
    tensors = [schema.TensorT(buffer=number) for number in range(1, len(buffers))]
    return schema.ModelT(3, [], [schema.SubGraphT(tensors, [], [])], buffers=buffers)


def weights_of(tree):
    return [bytes(tree.buffers[tensor.buffer].data) for tensor in tree.subgraphs[0].tensors]


def test_equal_weights_are_stored_once_and_every_tensor_keeps_its_own():
    weights = [b"a" * 4096, b"b" * 4096, b"a" * 4096, b"c" * 8]
    tree = tree_of(*weights)
    whole = len(pack(tree))
    share_equal_weights(tree)
    content = pack(tree)
    assert len(content) < whole - 4000
    assert weights_of(unpack(bytes(content))) == weights


def test_weights_behind_the_model_come_back_into_it():
    weights = [b"x" * 64, b"y" * 32]
    tree = tree_of(b"", b"")
    for buffer, each, offset in zip(tree.buffers[1:], weights, (4096, 4160), strict=True):
        buffer.data, buffer.offset, buffer.size = None, offset, len(each)
    tree.metadata = [schema.MetadataT("buffer_location")]
    tree = unpack(bytes(pack(tree)).ljust(4096) + b"".join(weights))
    assert weights_of(tree) == weights
    assert tree.metadata == []
    assert weights_of(unpack(bytes(pack(tree)))) == weights
