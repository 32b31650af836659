"""What the PyTorch formats share: names with dots, transposed kernels."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from keras_vit.checkpoints.array_files import Source
from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.formats.file_array import FileArray
from keras_vit.checkpoints.variable_names import Weight

LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias"}


def refuse_distilled(source: Source) -> None:
    """Raises CheckpointError if a file is a distilled DeiT."""
    tokens = [n for n in source.shapes if n.endswith(("dist_token", "distillation_token"))]
    if tokens:
        raise CheckpointError(
            f"{source.path} holds {tokens[0]}: it is a distilled DeiT, whose output is the mean of "
            "two heads, of the class token and of a distillation token. A Vision Transformer has "
            "one head. Use the DeiT without distillation, deit_base_patch16_224 instead of "
            "deit_base_distilled_patch16_224 for example. Nothing was loaded."
        )


def refuse_gated_mlp(source: Source, first: str, last: str) -> None:
    """Raises CheckpointError if the MLPs of a file are SwiGLU, as those of DINOv2's giant.

    Args:
        source: the file.
        first: the end of the names of an MLP's first projection's weights.
        last: that of the last's.
    """
    for name, shape in source.shapes.items():
        gated = name.endswith(("mlp.w12.weight", "mlp.weights_in.weight", "mlp.gate_proj.weight"))
        if name.endswith(first):
            after = source.shapes.get(name.removesuffix(first) + last, ())
            gated = len(shape) == len(after) == 2 and shape[0] == 2 * after[1]
        if gated:
            raise CheckpointError(
                f"{source.path} holds gated MLPs (SwiGLU, in {name}), as DINOv2's giant has. The "
                "MLP here is that of equation 3 alone. Use the small, base or large model. "
                "Nothing was loaded."
            )


def torch_name(
    weight: Weight,
    modules: Mapping[str, str],
    blocks: str,
    block_modules: Mapping[str, str],
    title: str,
) -> str:
    """Returns the name of a weight's array in a PyTorch format.

    Args:
        weight: the `Weight`.
        modules: {published name of an array, or of a module outside the blocks: the format's}.
        blocks: the format's name of the list of blocks.
        block_modules: {published name of a module of a block: the format's}.
        title: of the format.

    Raises:
        CheckpointError: if the format has no place for the weight.
    """
    if weight.name in modules:
        return modules[weight.name]
    module, _, leaf = weight.name.rpartition("/")
    block = re.fullmatch(r"Transformer/encoderblock_(\d+)/(.+)", module)
    theirs = modules.get(module)
    if block and block[2] in block_modules:
        theirs = f"{blocks}.{block[1]}.{block_modules[block[2]]}"
    if theirs is None or leaf not in LEAVES:
        raise CheckpointError(
            f"{title} has no place for the model's {weight.name}: it holds plain Vision "
            "Transformers. Use an .npz or .keras file for this model."
        )
    return f"{theirs}.{LEAVES[leaf]}"


def modules_after(prefix: str, modules: Mapping[str, str]) -> dict[str, str]:
    """Returns the names of modules in a file of Hugging Face, whose classifier has no prefix.

    Args:
        prefix: of the encoder.
        modules: {published name: the format's, without prefix}.
    """
    return {**{published: prefix + own for published, own in modules.items()}, "head": "classifier"}


def transpose_dense(array: np.ndarray, weight: Weight) -> list[np.ndarray]:
    """Unpacks a linear layer's (out, in) weight."""
    return [np.reshape(np.ascontiguousarray(array.T), weight.shape)]


def transpose_convolution(array: np.ndarray, weight: Weight) -> list[np.ndarray]:
    """Unpacks a convolution's (out, in, rows, columns) weight."""
    return [np.ascontiguousarray(array.transpose(2, 3, 1, 0))]


def file_array(name: str, weight: Weight, outputs: int = 1) -> FileArray:
    """Returns the `FileArray` of one weight in PyTorch's arrangement.

    Args:
        name: the array's name in the file.
        weight: the `Weight`.
        outputs: int, how many of the last axes of the published shape a linear
            layer's outputs are spread over.
    """
    shape = tuple(weight.shape)
    if not weight.name.endswith("/kernel"):
        if weight.positions is None and name.endswith("bias"):
            shape = (int(np.prod(shape)),)
        return FileArray(name, shape, (weight,))
    if weight.name == "embedding/kernel":
        rows, columns, inputs, width = shape
        return FileArray(name, (width, inputs, rows, columns), (weight,), transpose_convolution)
    flat = (int(np.prod(shape[-outputs:])), int(np.prod(shape[:-outputs])))
    return FileArray(name, flat, (weight,), transpose_dense)


def separate_arrays(
    weights: Sequence[Weight],
    modules: Mapping[str, str],
    blocks: str,
    block_modules: Mapping[str, str],
    title: str,
) -> list[FileArray]:
    """Returns a `FileArray` of each weight, where queries, keys and values have their own.

    Args:
        weights: of the model.
        modules: as of `torch_name`, and so are the others.
        blocks: the format's name of the list of blocks.
        block_modules: of a block.
        title: of the format.
    """
    arrays = []
    for weight in weights:
        name = torch_name(weight, modules, blocks, block_modules, title)
        projected = re.search(r"/(query|key|value)/", weight.name)
        arrays.append(file_array(name, weight, 2 if projected else 1))
    return arrays


def joint_array(name: str, parts: Sequence[Weight]) -> FileArray:
    """Returns the `FileArray` of projections that share an array, one after the other."""
    width = len(parts) * parts[0].shape[-1] * parts[0].shape[-2]
    shape = (width, parts[0].shape[0]) if name.endswith("weight") else (width,)
    return FileArray(name, shape, tuple(parts), _split)


def _split(array, *weights):
    parts = np.split(array, len(weights))
    return [
        np.reshape(np.ascontiguousarray(part.T), w.shape)
        for part, w in zip(parts, weights, strict=True)
    ]
