"""Operations from images to outputs with their weights beside them.

TensorFlow's graph optimizer copies constants several times over and prints them; it leaves alone
what it is told the name of only.
"""

import dataclasses
import pathlib
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.util import _pywrap_util_port

# After the optimizer: products and convolutions as oneDNN's pass would write them, and weights.
_RENAMED = {
    "_FusedMatMul": "_MklNativeFusedMatMul",
    "_FusedConv2D": "_MklNativeFusedConv2D",
    "_FusedDepthwiseConv2dNative": "_MklNativeFusedDepthwiseConv2dNative",
    "VariableV2": "Placeholder",
}
_AS_THEY_ARE = ("Const", "Placeholder")


@dataclasses.dataclass(frozen=True)
class FrozenGraph:
    """A function of images, of one output.

    Attributes:
        definition: the operations; images and weights are placeholders.
        images: name of the images' tensor, float32.
        shape: its shape, of int or None.
        output: name of the output's tensor.
        weights: {name of a tensor: its value}.
    """

    definition: tf.compat.v1.GraphDef
    images: str
    shape: tuple[int | None, ...]
    output: str
    weights: dict[str, tf.Tensor]

    @classmethod
    def of(
        cls, function: Callable[[tf.Tensor], tf.Tensor], shape: tuple[int | None, ...]
    ) -> "FrozenGraph":
        """Traces a function of a float32 tensor of `shape`.

        Eager tensors that it takes from around it are its weights. What depends on weights alone
        is computed now.
        """

        def on_cpu(images):
            # The optimizer fuses nothing of which it does not know that it is on a CPU.
            with tf.device("/CPU:0"):
                return tf.identity(function(images))

        traced = tf.compat.v1.wrap_function(on_cpu, [tf.TensorSpec(shape, tf.float32)])
        fixed = {placeholder.op.name for _, placeholder in traced.graph.captures}
        border: dict[str, tf.Tensor] = {}
        for operation in traced.graph.get_operations():
            if operation.type == "Placeholder":
                continue
            taken = [tensor for tensor in operation.inputs if tensor.op.name in fixed]
            if len(taken) == len(operation.inputs):
                fixed.add(operation.name)
            else:
                border |= {tensor.name: tensor for tensor in taken}
        computed = [each for each in border.values() if each.op.type not in _AS_THEY_ARE]
        values = traced.prune([], computed)() if computed else []
        pruned = traced.prune([*traced.inputs[:1], *computed], traced.outputs[0])
        captured = [(tensor, value) for value, tensor in pruned.graph.captures]
        fed = [*zip(pruned.inputs[1 : 1 + len(computed)], values, strict=True), *captured]
        needed = _with_ancestors(pruned.outputs[0].op)
        weights = {tensor.name: value for tensor, value in fed if tensor.op.name in needed}
        definition = pruned.graph.as_graph_def()
        kept = [node for node in definition.node if node.name in needed]
        del definition.node[:]
        definition.node.extend(kept)
        return cls(definition, pruned.inputs[0].name, shape, pruned.outputs[0].name, weights)

    def function(self, constants: bool) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the function.

        With `constants`, oneDNN reorders the weights of matrix products once, and keeps them,
        instead of in every call.
        """
        definition = self._with_constants() if constants else self.definition
        needed = {f"{node.name}:0" for node in definition.node} & set(self.weights)

        @tf.function(input_signature=[tf.TensorSpec(self.shape, tf.float32)], autograph=False)
        def infer(images):
            inputs = {name: tf.identity(self.weights[name]) for name in sorted(needed)}
            inputs[self.images] = images
            return tf.graph_util.import_graph_def(definition, inputs, [self.output], name="")[0]

        return infer.get_concrete_function()

    def _with_constants(self):
        """Returns the operations, of which products with weights are oneDNN's own.

        TensorFlow makes them so as well, later, but takes only constants of the graph for constant.
        """
        if not _pywrap_util_port.IsMklEnabled():
            return self.definition
        halves = any(weight.dtype == tf.bfloat16 for weight in self.weights.values())
        if halves and not _has_avx512():
            return self.definition
        meta = tf.compat.v1.MetaGraphDef()
        meta.graph_def.CopyFrom(self.definition)
        meta.signature_def["infer"].outputs["output"].name = self.output  # is kept
        for node in meta.graph_def.node:
            if f"{node.name}:0" in self.weights:
                # The optimizer makes values for placeholders, as large as the weights.
                node.op = "VariableV2"
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.min_graph_nodes = -1
        optimized = tf_optimizer.OptimizeGraph(config, meta)
        order = {f"^{name.removesuffix(':0')}" for name in self.weights}
        for node in optimized.node:
            data = [name for name in node.input if name not in order]
            del node.input[:]
            node.input.extend(data)
            operation = op_def_registry.get(_RENAMED.get(node.op, ""))
            if operation is None:
                continue
            node.op = operation.name
            known = {attribute.name for attribute in operation.attr}
            for name in set(node.attr) - known:
                if not name.startswith("_"):
                    del node.attr[name]
            if "is_filter_const" in known:
                node.attr["is_filter_const"].b = f"{node.input[1]}:0" in self.weights
                node.attr["_kernel"].s = b"MklNameChangeOp"
        return optimized


def _has_avx512():
    """Whether oneDNN computes in bfloat16 here, as TensorFlow asks before it takes its kernels."""
    try:
        return "avx512f" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def _with_ancestors(operation):
    """Returns the names of an operation and of all that it depends on."""
    found, left = set(), [operation]
    while left:
        operation = left.pop()
        if operation.name not in found:
            found.add(operation.name)
            left += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return found
