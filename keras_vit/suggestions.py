"""Hints for names that are close to ours, and for arguments of other libraries."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

# Our arguments instead of those of Keras Applications, then of timm.
OURS = {
    "include_top": "`num_classes=None` for a model without head",
    "classes": "`num_classes`",
    "input_shape": "`image_size=(height, width)` and `in_channels`",
    "classifier_activation": "logits as they are, and an activation after them",
    "pooling": "`classifier`",
    "pretrained": "`weights=` with a name of `keras_vit.list_weights()` or a path",
    "checkpoint_path": "`weights=`",
    "in_chans": "`in_channels`",
    "img_size": "`image_size`",
    "global_pool": "`classifier`",
    "drop_rate": "`dropout_rate`",
    "attn_drop_rate": "`attention_dropout_rate`",
    "drop_path_rate": "`stochastic_depth_rate`",
    "reg_tokens": "`register_tokens`",
    "embed_dim": "`hidden_size`",
    "depth": "`num_layers`",
}


def refuse_foreign(arguments: Mapping[str, Any]) -> None:
    """Raises TypeError that names ours if an argument is another library's."""
    foreign = [name for name in arguments if name in OURS]
    if foreign:
        instead = "; ".join(f"instead of `{name}` use {OURS[name]}" for name in foreign)
        raise TypeError(
            f"Expected arguments of keras_vit.create_model or of the model's class. Received: "
            f"{', '.join(foreign)}, which other libraries have: {instead}."
        )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns "Did you mean …? " with the names close to one, whatever their case, or ""."""
    ours = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), ours, cutoff=0.5)
    return f"Did you mean {' or '.join(ours[each] for each in close)}? " if close else ""
