"""Hints for names that are close to ours, and for arguments of other libraries."""

import difflib
from collections.abc import Collection, Iterable, Mapping
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


def refuse_unknown(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises TypeError if an argument is not known, with the name that is probably meant."""
    foreign = [name for name in arguments if name in OURS]
    for name in arguments:
        if name not in known and not foreign:
            hint = did_you_mean(name, known) or f"Expected one of {', '.join(known)}. "
            raise TypeError(f"{hint}Received: an argument {name!r}, which the model does not have.")
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
