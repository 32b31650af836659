"""Hints for names that are close to ours, and for arguments of other libraries."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

# Our arguments for the arguments of Keras Applications, then of timm.
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


def require_one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Raises ValueError unless an argument is among its choices."""
    if value not in choices:
        received = f"Received: {name}={value!r}"
        raise ValueError(f"`{name}` must be one of {tuple(choices)}. {received}")


def refuse_unknown(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises TypeError if an argument is not known, with the name that is probably meant."""
    foreign = [name for name in arguments if name in OURS]
    if foreign:
        instead = "; ".join(f"instead of `{name}` use {OURS[name]}" for name in foreign)
        raise TypeError(
            f"Expected arguments of keras_vit.create_model or of the model's class. Received: "
            f"{', '.join(foreign)}, which other libraries have: {instead}."
        )
    for name in arguments:
        if name not in known:
            hint = did_you_mean(name, known) or f"Expected one of {', '.join(known)}. "
            raise TypeError(f"{hint}Received: an argument {name!r}, which the model does not have.")


def did_you_mean(word: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """Returns "Did you mean …? " with a known word that is longer or close, in any case, or "".

    `meant` is {known word: what is shown for it}; None shows the words.
    """
    word, ours = word.lower(), {each.lower(): meant[each] if meant else each for each in known}
    longer = [each for each in ours if len(word) > 3 and each.startswith(word)]
    close = longer or difflib.get_close_matches(word, ours, n=1)
    return f"Did you mean {ours[close[0]]}? " if close else ""
