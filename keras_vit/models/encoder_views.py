"""A Vision Transformer's views of itself: its grid, its attention, and any resolution."""

from collections.abc import Sequence

import keras

from keras_vit.layers import EncoderBlock, PatchEmbedding
from keras_vit.layers.position_embeddings import PositionEmbedding
from keras_vit.models.argument_ranges import WITH_CLASS_TOKEN
from keras_vit.models.image_model import ImageModel
from keras_vit.models.resnets import stem_stride
from keras_vit.type_hints import Tensor


class EncoderViews(ImageModel):
    """The parts of a `VisionTransformer` that are not its equations."""

    @property
    def grid_size(self) -> tuple[int, int]:
        """The (rows, columns) of patches."""
        return tuple(self.endpoints["stem"].shape[1:3])

    @property
    def token_stride(self) -> int:
        """Pixels of the image between neighboring tokens, those of the ResNet's stride included."""
        resnet = self.arguments["resnet"]
        return self.arguments["patch_size"] * (stem_stride(resnet["num_layers"]) if resnet else 1)

    @property
    def num_prefix_tokens(self) -> int:
        """The tokens before those of the patches: class token and registers."""
        class_token = self.arguments["classifier"] in WITH_CLASS_TOKEN
        return int(class_token) + self.arguments["register_tokens"]

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        """The encoder's blocks, in order."""
        count = self.arguments["num_layers"]
        return [self.get_layer(f"encoder_block_{index:02d}") for index in range(count)]

    @property
    def attention_endpoints(self) -> dict[str, Tensor]:
        """The attention weights of every block (equation 6), as tensors of the model's graph.

        A dict of "block_00/attention" and so on to (batch, heads, tokens, tokens) float32.

        Raises:
            ValueError: if the model's attention is axial.
        """
        if self.arguments["attention"] == "axial":
            raise ValueError(
                "Axial attention has one map for every row and column instead of one for the "
                'image. Use a model with attention="global".'
            )
        pairs = zip(self.blocks, self._record.block_inputs, strict=True)
        return {
            f"block_{index:02d}/attention": AttentionOfBlock(block)(tokens)
            for index, (block, tokens) in enumerate(pairs)
        }

    def any_resolution(self, outputs: str | Sequence[str] = "output") -> keras.Model:
        """Returns the same model, on the same weights, for images of every size.

        Learned position embeddings are interpolated in the graph, corners aligned, to
        the grid of the image at hand; at the model's own size the result is its
        own. Sines and cosines are computed. Pixels that do not fill a patch are cropped.

        Args:
            outputs: "output", or a name of `endpoints` or `attention_endpoints`, or a sequence
                of such names for a model that returns a dict of them.

        Raises:
            ValueError: if the model's weights know the grid in another way, as relative
                positions and axial attention do, or if it has nothing of such a name.
        """
        if self.arguments["attention"] == "axial":
            raise ValueError("Axial attention needs one image size: its blocks know the grid.")
        if self.arguments["position_embedding"] == "relative":
            raise ValueError("Relative positions need one image size: their table has its length.")
        named = {**self.endpoints, **self.attention_endpoints, "output": self.output}
        names = [outputs] if isinstance(outputs, str) else outputs
        if not set(names) <= set(named):
            raise ValueError(f"Expected names of {', '.join(named)}. Received: {outputs!r}")
        result = named[outputs] if isinstance(outputs, str) else {n: named[n] for n in names}
        stem: list[Tensor] = []

        def call(layer, *args, **kwargs):
            if isinstance(layer, PositionEmbedding):
                return layer(*args, stem=stem[0])
            output = layer(*args, **kwargs)
            if isinstance(layer, PatchEmbedding):
                stem.append(output)
            return output

        images = keras.Input((None, None, self.input.shape[-1]), dtype="float32", name="images")
        return keras.models.clone_model(
            keras.Model(self.input, result, name=f"{self.name}_any_resolution"),
            input_tensors=images,
            clone_function=lambda layer: layer,
            call_function=call,
        )


class AttentionOfBlock(keras.layers.Layer):
    """The attention weights of a built encoder block, from its input; shares its variables."""

    def __init__(self, block: EncoderBlock):
        super().__init__(name=f"{block.name}_attention", dtype=block.dtype_policy)
        self.block = block
        self.built = True

    def call(self, tokens: Tensor) -> Tensor:
        return self.block.attention.probabilities(self.block.attention_norm(tokens))
