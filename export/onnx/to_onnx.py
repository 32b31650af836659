"""ONNX: models for ONNX Runtime and the other readers of the format."""

import os
import pathlib
from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_vit.checkpoints.save import require_finite
from keras_vit.training.inference.interface import LABELS_FILE, Interface, image_size
from keras_vit.training.io.atomic import atomic_file
from keras_vit.training.io.quiet_start import quiet_conversion

from ..errors import damage_refused, imported
from ..supported_models import FILE_LIMIT, output_name, portable
from ..tflite.gpu_delegate_fixes import for_delegates

# The first that has LayerNormalization, which quantizers know; GELU becomes Erf or Tanh.
OPSET = 17
# Bytes of a file that are left for its graph, beside its weights.
_GRAPH_SIZE = 2**24
# Operations that change the layout of an array and no number in it.
_LAYOUTS = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
# The operations of `keras_vit.layers.LayerNormalization`, from the last one upwards: which input of
# the operation before leads to each.
_NORMALIZATION = [
    *[("Mul", 0), ("Mul", 0), ("Reciprocal", 1), ("Sqrt", 0), ("Add", 0)],
    *[("GlobalAveragePool ReduceMean", 0), ("Mul", 0), ("Sub", 0)],
]


def to_onnx(
    model: keras.Model,
    file: str | os.PathLike,
    *,
    labels: Sequence[str] | None = None,
    output: str | None = None,
    float16: bool = False,
    activation: str | None = None,
) -> pathlib.Path:
    """Writes a model as an ONNX file, and returns its path.

    It takes `image`, (batch, height, width, 3) float32 RGB in [0, 1], any number of them, and
    gives `logits`, (batch, classes), of pixels (batch, height, width, classes), or
    `representation`, float32 too. Its metadata has `labels`,
    class names by lines, and `interface.json`, which says the size, range and preprocessing of
    images. Weights of 2 GiB or more are in a second file, whose name ends with ".onnx.data".

    Args:
        model: of this package, one of `export.supported_models.MODELS`.
        file: the file to write; it appears whole or not at all, after the weights beside it.
        labels: class names in the order of the logits; None takes `model.class_names`.
        output: "logits" or "representation"; None takes the logits where the model has a head.
        float16: whether to store weights and compute in float16, apart from the head and the
            statistics of normalizations. Half the size, for GPUs; on x86, ONNX Runtime computes
            such a file in float32.
        activation: "softmax" or "sigmoid", which the file says that its logits want; None takes
            the model's.

    Raises `RuntimeMissing` if tf2onnx, which Keras converts with, is not installed; `ExportError`
    if the model is of another package; `ValueError` if the labels do not fit, or the model does not
    have the output; `OSError` if the file cannot be written.
    """
    imported("tf2onnx", "onnx")
    onnx = imported("onnx", "onnx")
    # A policy of Keras: converters of files compute normalizations in float16 too, and overflow.
    model = portable(model, "float16" if float16 else "float32")
    # The model's own are finite here.
    require_finite(model, "float16 ends at 65504. Export float32")
    output = output_name(model, output)
    texts = Interface.of_export(model, output, labels, activation).texts()
    if LABELS_FILE in texts:
        texts["labels"] = texts.pop(LABELS_FILE)
    image = keras.Input((*image_size(model), 3), dtype="float32", name="image")
    scaled = keras.layers.Rescaling(2.0, -1.0, dtype="float32")(image)
    # ONNX Runtime, too, takes zeros before a maximum for padding that is never the maximum.
    layers = for_delegates(model.up_to(output))
    graph = _WeightsAsInputs(keras.Model(image, {output: layers(scaled)}))
    with atomic_file(file) as temporary, quiet_conversion(Warning):
        graph.export(
            str(temporary),
            format="onnx",
            opset_version=OPSET,
            verbose=False,
            input_signature=[graph.specs(image)],
        )
        content = onnx.load(temporary)
        arrays = graph.weights_by_name()
        if {each.name for each in content.graph.input} - {"image", *arrays}:
            arrays |= graph.constants_by_name(image)
        _store_weights(content.graph, arrays)
        _fuse_normalizations(content.graph)
        content.doc_string = f"{model.name} of keras_vit: RGB images in [0, 1]"
        onnx.helper.set_model_props(content, texts)
        unknown = f"{model.name} has a layer that the converter to ONNX does not know"
        weights = f"{temporary.name}.data"
        size = sum(len(each.raw_data) for each in content.graph.initializer)
        is_large = size >= FILE_LIMIT - _GRAPH_SIZE
        onnx.save(content, temporary, save_as_external_data=is_large, location=weights)
        with damage_refused(unknown, "Replace it."):
            onnx.checker.check_model(temporary)
            (_image,) = content.graph.input
        if is_large:
            with atomic_file(f"{os.fspath(file)}.data") as beside:
                os.replace(temporary.with_name(weights), beside)
    return pathlib.Path(file)


class _WeightsAsInputs(keras.Model):
    """A model whose weights are arguments, since the converter copies constants dozens of times."""

    def __init__(self, model):
        super().__init__(name=model.name, autocast=False)
        self.model, self.built = model, True

    def call(self, inputs):
        image, *weights = inputs
        trainable = len(self.model.trainable_variables)
        outputs, _ = self.model.stateless_call(
            weights[:trainable], weights[trainable:], image, training=False
        )
        return outputs

    def weights_by_name(self):
        weights = [*self.model.trainable_variables, *self.model.non_trainable_variables]
        return {f"weight_{number}": weight for number, weight in enumerate(weights)}

    def specs(self, image):
        inputs = {image.name: image, **self.weights_by_name()}
        return [tf.TensorSpec(each.shape, each.dtype, name) for name, each in inputs.items()]

    def constants_by_name(self, image):
        """Returns what layers keep beside weights, such as a Normalization's mean.

        The converter takes these for inputs too.
        """
        specs = self.specs(image)
        traced = tf.function(self, autograph=False).get_concrete_function(specs)
        names = [each.name for each in traced.inputs[len(specs) :]]
        return dict(zip(names, traced.captured_inputs, strict=True))


def _store_weights(graph, inputs):
    """Makes arrays of inputs, as they are used, since quantizers look for them at operations."""
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    weights = {each.name: each for each in graph.initializer}
    for each in [each for each in graph.input if each.name in inputs]:
        array = keras.ops.convert_to_numpy(inputs[each.name])
        weights[each.name] = numpy_helper.from_array(array, each.name)
        graph.input.remove(each)
    for node in list(graph.node):
        if node.op_type in _LAYOUTS and all(name in weights for name in node.input):
            arrays = {name: numpy_helper.to_array(weights[name]) for name in node.input}
            (array,) = ReferenceEvaluator(node).run(None, arrays)
            weights[node.output[0]] = numpy_helper.from_array(array, node.output[0])
            graph.node.remove(node)
    _replace(graph.initializer, weights.values())


def _fuse_normalizations(graph):
    """Makes each LayerNormalization one operation, and drops what nothing uses."""
    from onnx import helper, numpy_helper

    weights = {each.name: each for each in graph.initializer}
    made_by = {name: node for node in graph.node for name in node.output}
    used, nodes = {each.name for each in graph.output}, []
    for node in reversed(graph.node):
        if used.isdisjoint(node.output):
            continue
        parts = [node] if node.op_type == "Add" else []
        for kinds, position in _NORMALIZATION if parts else ():
            parts.append(made_by.get(parts[-1].input[position]))
            if parts[-1] is None or parts[-1].op_type not in kinds.split():
                break
        else:
            if parts:
                epsilon = numpy_helper.to_array(weights[parts[5].input[1]]).item()
                inputs = [parts[-1].input[0], parts[1].input[1], node.input[1]]
                node = helper.make_node(
                    "LayerNormalization", inputs, node.output, node.name, epsilon=epsilon
                )
        nodes.append(node)
        used.update(node.input)
    _replace(graph.node, reversed(nodes))
    _replace(graph.initializer, [each for name, each in weights.items() if name in used])


def _replace(field, values):
    """Replaces all values of a repeated field of a protocol buffer."""
    values = list(values)
    del field[:]
    field.extend(values)
