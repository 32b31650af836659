"""Where an image speaks for one class, by gradients of that class's logit.

Chefer, Gur & Wolf (2021), "Generic Attention-model Explainability", equations 5 and 6: attention
A of each layer is weighted by the gradient of the logit y in it, and accumulated from
the first layer to the last:

    Ā = mean over heads of max(dy/dA ⊙ A, 0),        R <- R + Ā R, at first R = I.

Grad-CAM (Selvaraju et al., 2017): the channels of the normalized tokens z that enter the last
block's attention, weighted by the mean of their gradients over the patches:

    max(sum over channels k of (mean over patches of dy/dz_k) z_k, 0).
"""

from collections.abc import Callable, Sequence

import keras
import numpy as np
from keras import ops

from keras_vit.analysis.attention import attention_tensors, readout
from keras_vit.backends.by_backend import gradient_function
from keras_vit.layers import EncoderBlock
from keras_vit.models.image_model import require_kind
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.name_suggestions import require_one_of
from keras_vit.photos.prepare_photos import require_model_range
from keras_vit.type_hints import Tensor

METHODS = ("gradient_attention", "grad_cam")


def class_maps(
    model: VisionTransformer,
    images: Tensor,
    classes: Sequence[int] | Sequence[str] | None = None,
    method: str = "gradient_attention",
    batch_size: int = 8,
) -> np.ndarray:
    """Returns how much each patch of an image speaks for a class.

    Args:
        model: a `VisionTransformer` with global attention and a head, hybrids included.
        images: (batch, height, width, 3) float32 in [-1, 1], of the model's size.
        classes: one class for each image, by number or by its name in `model.class_names`; None
            takes the most probable.
        method: "gradient_attention" (Chefer et al., 2021) or "grad_cam".
        batch_size: int, images computed at once.

    Returns:
        (batch, rows, columns) float32 NumPy array, the grid of patches. Every map is divided by its
        maximum, so that it lies in [0, 1]; it is 0 where no patch speaks for the class.

    Raises:
        ValueError: if the model is of another kind, there is no image, or not one class of the
            model for each.
    """
    return class_maps_function(model, method, batch_size)(images, classes)


def class_maps_function(
    model: VisionTransformer, method: str = "gradient_attention", batch_size: int = 8
) -> Callable[[Tensor, Sequence[int] | Sequence[str] | None], np.ndarray]:
    """Returns `class_maps` of one model, prepared and compiled once for all calls."""
    function, probes = class_maps_graph(model, method)
    count = model.output_shape[-1]

    def maps(images, classes=None):
        if len(images) == 0:
            raise ValueError("Expected at least one image. Received: 0 images.")
        known = {name: number for number, name in enumerate(model.class_names or ())}
        numbers = np.full(len(images), -1) if classes is None else np.asarray(classes)
        if numbers.dtype.kind == "U" and known.keys() >= set(numbers.ravel().tolist()):
            numbers = np.vectorize(known.get)(numbers)
        integers = numbers.dtype.kind in "iu" and numbers.shape == (len(images),)
        if not (integers and (classes is None or ((numbers >= 0) & (numbers < count)).all())):
            raise ValueError(
                f"Expected a list of one class in [0, {count}), or its name, for each of "
                f"{len(images)} images. Received: {classes!r}"
            )
        images = ops.convert_to_numpy(images).astype("float32")
        require_model_range(images)
        size = min(batch_size, len(images))
        zeros, found = np.zeros((size, *probes), "float32"), []
        for start in range(0, len(images), size):
            # Batches of one size are compiled once.
            batch = np.resize(np.arange(start, min(start + size, len(images))), size)
            found.append(function(images[batch], zeros, numbers[batch].astype("int32")))
        return np.concatenate([ops.convert_to_numpy(each) for each in found])[: len(images)]

    return maps


def class_maps_graph(
    model: VisionTransformer, method: str = "gradient_attention"
) -> tuple[Callable[[Tensor, Tensor, Tensor], Tensor], tuple[int, ...]]:
    """Returns `class_maps` of one model as arithmetic of its backend, and a shape.

    It is a function of (images, zeros (batch, *shape) float32, classes (batch,) int32), which
    takes the most probable class for a negative number and checks nothing.
    """
    require_one_of("method", method, METHODS)
    require_kind(model, VisionTransformer, "a VisionTransformer")
    if len(model.output_shape) != 2 or "logits" not in model.endpoints:
        raise ValueError(
            "Expected a model with one row of logits for an image. Received: "
            f"{model.name}, which gives {model.output_shape}."
        )
    attention = attention_tensors(model)
    read, _ = readout(model, attention[-1])
    count, depth = model.output_shape[-1], len(attention)
    of_attention = method == "gradient_attention"
    probes = model.endpoints["encoded"].shape[1:]
    if of_attention:
        probes = (depth, *attention[0].shape[1:])
    # That of pooling by attention depends on the image.
    pooled = [read] if keras.utils.is_keras_tensor(read) else []
    probed = _probed(model, [model.endpoints["logits"], *pooled], probes, of_attention)

    def score(outputs, classes):
        best = ops.argmax(outputs[0], axis=-1)
        chosen = ops.where(classes < 0, ops.cast(best, "int32"), classes)
        return ops.sum(outputs[0] * ops.one_hot(chosen, count, dtype="float32"))

    def finish(gradient, outputs):
        seen, start = outputs[-1], ops.convert_to_tensor(outputs[1] if pooled else read)
        first = model.num_prefix_tokens
        if of_attention:
            weighted = ops.mean(ops.relu(gradient * seen), axis=2)
            drawn = start
            for layer in reversed(range(depth)):
                drawn = drawn + ops.matmul(drawn, weighted[:, layer])
            # Without the identity, by which a mean over patches draws alike from all.
            patches = (drawn - start)[:, 0, first:]
        else:
            seen, gradient = (ops.cast(each, "float32")[:, first:] for each in (seen, gradient))
            channels = ops.mean(gradient, axis=1, keepdims=True)
            patches = ops.relu(ops.sum(channels * seen, axis=-1))
        largest = ops.max(patches, axis=-1, keepdims=True)
        patches = ops.where(largest > 0, patches / ops.maximum(largest, 1e-37), 0.0)
        return ops.reshape(patches, (-1, *model.grid_size))

    return gradient_function(probed, score, finish), probes


def _probed(model, outputs, shape, of_attention):
    """Returns the model of (images, probe) to `outputs`, then what the probe of zeros is added to.

    That is the attention of all blocks, (batch, layers, heads, tokens, tokens), or the tokens that
    enter the last one, (batch, tokens, hidden_size).
    """
    images = keras.Input(model.input_shape[1:], name="images")
    probe = keras.Input(shape, name="probe")
    seen = []

    def call(layer, *args, **kwargs):
        if not isinstance(layer, EncoderBlock):
            return layer(*args, **kwargs)
        index = model.blocks.index(layer)
        if not of_attention and layer is not model.blocks[-1]:
            return layer(*args, **kwargs)
        added = probe[:, index] if of_attention else probe
        result, inside = _ProbedBlock(layer, of_attention)(*args, added, **kwargs)
        seen.append(inside)
        return result

    graph = keras.models.clone_model(
        keras.Model([model.input, keras.Input(shape)], outputs),
        input_tensors=[images, probe],
        clone_function=lambda layer: layer,
        call_function=call,
    )
    inside = ops.stack(seen, axis=1) if of_attention else seen[0]
    return keras.Model([images, probe], [*graph.outputs, inside])


class _ProbedBlock(keras.layers.Layer):
    """Equations 2 and 3 in inference, something added to the attention or the tokens before it."""

    def __init__(self, block, of_attention):
        super().__init__(name=f"{block.name}_probed", dtype=block.dtype_policy, autocast=False)
        self.block, self.of_attention = block, of_attention
        self.built = True

    def call(self, z, probe, rotary_grid=None):
        attend = self.block.attention
        x = self.block.attention_norm(z)
        if not self.of_attention:
            x = x + ops.cast(probe, x.dtype)
        probabilities = attend.probabilities(x, rotary_grid=rotary_grid)
        added = probabilities + probe if self.of_attention else probabilities
        z = attend.weighted_values(added, x) + z
        return self.block.mlp(self.block.mlp_norm(z)) + z, probabilities if self.of_attention else x
