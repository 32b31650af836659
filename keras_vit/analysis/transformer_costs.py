"""Parameters and multiply-accumulates of the Vision Transformer and its relatives."""

from typing import Any

from keras_vit.analysis.cost_of_part import Cost
from keras_vit.analysis.resnet_costs import FeatureMap, stem_costs
from keras_vit.models.argument_checks import as_height_width
from keras_vit.models.vision_transformer import WITH_CLASS_TOKEN


def attention_costs(
    hidden_size: int,
    num_heads: int,
    length: int,
    sequences: int = 1,
    queries: int | None = None,
    relative: bool = False,
) -> Cost:
    """Counts multi-head self-attention (equations 5 to 8).

    Args:
        hidden_size: int, D.
        num_heads: int.
        length: int, tokens that attend to one another.
        sequences: int, how often an image is attended to, as for rows or columns.
        queries: int, the tokens of a sequence whose output the graph computes;
            all by default.
        relative: bool, whether it has relative position embeddings.
    """
    queries = length if queries is None else queries
    tokens, executed = sequences * length, sequences * queries
    query_and_out = Cost.of_product(hidden_size, hidden_size, tokens, executed) * 2
    key_and_value = Cost.of_product(hidden_size, hidden_size, tokens) * 2
    products = Cost(
        macs=2 * tokens * length * hidden_size,
        executed_macs=2 * executed * length * hidden_size,
    )
    result = query_and_out + key_and_value + products
    if relative:
        distances = 2 * length - 1
        result += Cost(
            parameters=distances * (hidden_size // num_heads),
            macs=tokens * distances * hidden_size,
            executed_macs=executed * distances * hidden_size,
        )
    return result


def mlp_costs(
    hidden_size: int, mlp_dim: int, tokens: int, executed_tokens: int | None = None
) -> Cost:
    """Counts the two dense layers of an encoder block (equation 3)."""
    first = Cost.of_product(hidden_size, mlp_dim, tokens, executed_tokens)
    return first + Cost.of_product(mlp_dim, hidden_size, tokens, executed_tokens)


def _encoder(arguments, grid, tokens):
    """Returns the `Cost` of all attention, all MLPs and all of the encoder's norms."""
    width, heads = arguments["hidden_size"], arguments["num_heads"]
    relative = arguments["position_embedding"] == "relative"
    depth, mlp_dim = arguments["num_layers"], arguments["mlp_dim"]
    if arguments["attention"] == "axial":
        rows, columns = grid
        by_row = attention_costs(width, heads, columns, sequences=rows, relative=relative)
        by_column = attention_costs(width, heads, rows, sequences=columns, relative=relative)
        attention = (by_row + by_column) * depth
        mlp = mlp_costs(width, mlp_dim, tokens) * (2 * depth)
        norms = 4 * depth
    else:
        queries = 1 if arguments["classifier"] == "token" else tokens
        attention = attention_costs(width, heads, tokens, relative=relative) * (depth - 1)
        attention += attention_costs(width, heads, tokens, queries=queries, relative=relative)
        mlp = mlp_costs(width, mlp_dim, tokens) * (depth - 1)
        mlp += mlp_costs(width, mlp_dim, tokens, queries)
        norms = 2 * depth
    return attention, mlp, Cost(parameters=2 * width) * (norms + 1)


def _position_parameters(arguments, grid, tokens):
    width, (rows, columns) = arguments["hidden_size"], grid
    prefix = int(arguments["classifier"] in WITH_CLASS_TOKEN)
    table = {
        "learned_1d": tokens * width,
        "learned_2d": (rows + columns) * width // 2 + prefix * width,
    }.get(arguments["position_embedding"], 0)
    every = arguments["position_placement"] == "every"
    return table * (arguments["num_layers"] if every else 1)


def _head(arguments, tokens):
    """Returns the `Cost` of pooling, the hidden layer and the head, and of their norms."""
    width = arguments["hidden_size"]
    rows = tokens if arguments["classifier"] == "unpooled" else 1
    head, norm = Cost(), Cost()
    if arguments["classifier"] == "map":
        head += Cost(parameters=width)
        head += Cost.of_product(width, width) * 2
        head += Cost.of_product(width, width, tokens) * 2
        head += Cost(macs=2 * tokens * width, executed_macs=2 * tokens * width)
        head += mlp_costs(width, arguments["mlp_dim"], 1)
        norm = Cost(parameters=2 * width)
    if arguments["classifier"] == "token_gap":
        width *= 2
    if arguments["representation_size"]:
        head += Cost.of_product(width, arguments["representation_size"], rows)
        width = arguments["representation_size"]
    if arguments["num_classes"] is not None:
        head += Cost.of_product(width, arguments["num_classes"], rows)
    return head, norm


def transformer_costs(**arguments: Any) -> dict[str, Cost]:
    """Counts a `VisionTransformer`; arguments are its constructor's. Returns {layer type: `Cost`}.

    For a model of images and one global attention over N patches and T tokens this
    is 3 P^2 N D + L (4 T D^2 + 2 T^2 D + 2 T D M) and the head.
    """
    width, patch = arguments["hidden_size"], arguments["patch_size"]
    stem = norm = Cost()
    channels = arguments.get("in_channels", 3)
    features = FeatureMap(*as_height_width(arguments["image_size"]), channels)
    if arguments["resnet"]:
        stem, norm, features = stem_costs(
            arguments["image_size"], **arguments["resnet"], in_channels=channels
        )
    grid = (features.height // patch, features.width // patch)
    patches = grid[0] * grid[1]
    class_token = arguments["classifier"] in WITH_CLASS_TOKEN
    tokens = patches + 1 if class_token else patches
    registers = arguments.get("register_tokens", 0)
    attention, mlp, encoder_norm = _encoder(arguments, grid, tokens + registers)
    head, head_norm = _head(arguments, tokens)
    return {
        "convolution": stem,
        "patch embedding": Cost.of_product(patch**2 * features.channels, width, patches),
        "class token": Cost(parameters=width if class_token else 0),
        **({"register tokens": Cost(parameters=registers * width)} if registers else {}),
        "position embedding": Cost(_position_parameters(arguments, grid, tokens)),
        "attention": attention,
        "MLP": mlp,
        "normalization": norm + encoder_norm + head_norm,
        "head": head,
    }
