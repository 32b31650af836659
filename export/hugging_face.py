"""Hugging Face: a folder that transformers or timm open, and its repository on the Hub."""

import contextlib
import dataclasses
import json
import os
import pathlib
import types
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints import torch_layouts
from keras_vit.checkpoints.array_files import write_safetensors
from keras_vit.checkpoints.library_configs import CONFIG, OURS, PREPROCESSOR, RENAMED
from keras_vit.checkpoints.library_folder import METHODS
from keras_vit.checkpoints.weights_of_model import weights_of
from keras_vit.models import VisionTransformer
from keras_vit.name_suggestions import require_one_of
from keras_vit.photos.operations_text import height_and_width
from keras_vit.photos.prepare_photos import parsed_operations
from keras_vit.training.inference.interface import Interface, image_size, model_operations
from keras_vit.training.io.atomic import atomic_directory

from .errors import ExportError, imported
from .model_card import TERMS, require_license
from .supported_models import output_name, portable

_WEIGHTS = "model.safetensors"
_OF_TRANSFORMERS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "patch_size")
_OF_TRANSFORMERS += ("intermediate_size", "num_register_tokens", "layer_norm_eps")
_CLASSES: dict[str, tuple[str, torch_layouts.TorchLayout]] = {
    "vit": ("ViT", torch_layouts.HUGGING_FACE_VIT),
    "dinov2": ("Dinov2", torch_layouts.HUGGING_FACE_DINOV2),
    "dinov2_with_registers": ("Dinov2WithRegisters", torch_layouts.HUGGING_FACE_DINOV2),
    "dinov3_vit": ("DINOv3ViT", torch_layouts.HUGGING_FACE_DINOV3),
    "siglip": ("Siglip", torch_layouts.HUGGING_FACE_SIGLIP_CLASSIFIER),
    "siglip_vision_model": ("SiglipVision", torch_layouts.HUGGING_FACE_SIGLIP),
}
_OF_TIMM = ("embed_dim", "depth", "num_heads", "patch_size", "reg_tokens")
_CARD = """---
library_name: {library}
pipeline_tag: {task}
{license}---

# {name}

A Vision Transformer, written by keras-vit. {terms}

    {use}
"""
_USE = {
    "transformers": "transformers.pipeline(task, model=FOLDER)(photo)",
    "timm": "timm.create_model('local-dir:FOLDER', pretrained=True).eval()  # or hf-hub:USER/NAME",
}


def to_hugging_face(
    model: keras.Model,
    directory: str | os.PathLike,
    *,
    library: str = "transformers",
    labels: Sequence[str] | None = None,
    license: str | None = None,
) -> pathlib.Path:
    """Writes a model as a folder that transformers or timm open, and returns the directory.

    It holds config.json, model.safetensors in float32, for transformers preprocessor_config.json,
    and README.md, the card of the Hub. `keras_vit.create_model(directory)` reads it back. Both
    libraries average where they shrink photos, whatever `model.preprocessing` says.

    Args:
        model: a `VisionTransformer` that the library can express.
        directory: where to write; it appears whole or not at all, and replaces one that it wrote
            before.
        library: "transformers" or "timm".
        labels: class names in the order of the logits; None takes `model.class_names`.
        license: of the weights, as the Hub spells it, "apache-2.0"; None takes `model.license`.

    Raises `ExportError` if the model has what cannot be written for the library, which it names, or
    the license is not that of weights which it derives from; `ValueError` if an argument is out of
    its range; `OSError` if the directory cannot be written.
    """
    require_one_of("library", library, tuple(_USE))
    license = require_license(model, license or model.license)
    model, directory = _with_learned_positions(portable(model)), pathlib.Path(directory)
    interface = Interface.of_export(model, output_name(model), labels)
    a = types.SimpleNamespace(**model.arguments, size=list(image_size(model)))
    a.head, a.timm = a.num_classes is not None, library == "timm"
    a.numbers = a.head and model.activation == "linear"
    reason = f"it is a {type(model).__name__}"
    if isinstance(model, VisionTransformer):
        a.rotary, a.gated = a.position_embedding == "rope_2d", a.mlp != "gelu"
        a.siglip = a.classifier in ("gap", "map") and not a.timm
        a.vit = a.classifier == "token" and not (a.timm or a.rotary or a.register_tokens)
        a.dinov2 = not (a.timm or a.rotary or a.siglip or a.vit)
        reason = _unexpressible(a)
    if reason:
        raise ExportError(
            f"Expected a model that can be written for {library}. Received: {model.name}, but "
            f"{reason}. Use model.save, or export it with to_hub, to_onnx or to_tflite."
        )
    layout, config = _of_timm(a) if a.timm else _of_transformers(a)
    arrays = _arrays(a, dict(layout.packed(weights_of(model))))
    prepared = _cropping(a, *_resizing(model))
    if a.timm:
        config["pretrained_cfg"] |= prepared
    else:
        prepared |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    ours: dict[str, Any] = {"image_size": a.size, "preprocessing": model_operations(model)}
    ours |= {"thresholds": model.thresholds} if model.thresholds else {}
    files = {CONFIG: config | _classes(a, interface), OURS: ours}
    files |= {} if a.timm else {PREPROCESSOR: prepared}
    task = "image-classification" if a.head else "image-feature-extraction"
    header = f"license: {license.lower()}\n" if license else ""
    card = _CARD.format(
        library=library,
        task=task,
        name=directory.name,
        license=f"license: other\nlicense_name: {license}\n" if license in TERMS else header,
        terms=TERMS.get(license or "", ""),
        use=_USE[library],
    )
    texts = {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()}
    with atomic_directory(directory, marker=OURS) as written:
        write_safetensors(written / _WEIGHTS, sorted(arrays.items()))
        for name, text in {**texts, "README.md": card}.items():
            (written / name).write_text(text, encoding="utf-8")
    return directory


def _with_learned_positions(model):
    """Returns the same function with one learned table of the positions at its stem."""
    found = model.arguments if isinstance(model, VisionTransformer) else {}
    fixed = found.get("position_embedding") in ("none", "learned_2d", "sincos_2d")
    if not fixed or found["position_placement"] != "stem":
        return model
    copy = type(model).from_config(model.get_config() | {"position_embedding": "learned_1d"})
    table = copy.get_layer("position_embedding").embedding
    sources = {weight.path: weight for weight in model.weights}
    for target in copy.weights:
        if target is not table:
            target.assign(sources[target.path])
    is_none = found["position_embedding"] == "none"
    table.assign(table * 0 if is_none else model.get_layer("position_embedding").table())
    return copy


def push(directory: str | os.PathLike, repository: str) -> str:
    """Uploads a folder to the repository USER/NAME of the Hub, and returns its address.

    A new repository is private. Raises `ExportError` if huggingface_hub is missing or refuses.
    """
    api = imported("huggingface_hub", "huggingface").HfApi()
    try:
        address = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=os.fspath(directory))
    except Exception as error:  # of its own HTTP library too
        raise ExportError(
            f"{directory} is written, and cannot be pushed to {repository}: "
            f"{' '.join(str(error).split())[:300]} Log in with `hf auth login`, and name USER/NAME."
        ) from error
    return str(address)


def _unexpressible(a):
    """Returns what of a model of these arguments cannot be written for the library, or ""."""
    known = {("token", True), ("token", False), ("gap", True), ("map", False)}
    known |= {("gap", False), ("map", True)} if a.timm else {("token_gap", True)}
    known = {("token", False)} if a.rotary else known
    positions = ("learned_1d",) if a.timm else ("learned_1d", "rope_2d")
    with_head = f"with{'' if a.head else 'out'} a head{' and rotary positions' * a.rotary}"
    reasons = {
        "it has a ResNet": a.resnet,
        "its outputs are numbers, not classes": a.numbers,
        f"attention={a.attention!r}": a.attention != "global",
        f"representation_size={a.representation_size}": a.representation_size,
        f"position_embedding={a.position_embedding!r}": a.position_embedding not in positions,
        f"position_placement={a.position_placement!r}": a.position_placement != "stem",
        f"classifier={a.classifier!r} {with_head}": (a.classifier, a.head) not in known,
        "it has rotary positions without register tokens": a.rotary and not a.register_tokens,
        "it has register tokens without class token": a.siglip and a.register_tokens,
        f"mlp={a.mlp!r}": a.gated and not (a.rotary or a.timm),
        f"layer_norm_epsilon={a.layer_norm_epsilon}": a.timm and a.layer_norm_epsilon != 1e-6,
        "its images are not square": (a.siglip or a.dinov2) and a.size[0] != a.size[1],
        "mlp_dim is no multiple of hidden_size": a.dinov2 and a.mlp_dim % a.hidden_size,
    }
    return next((name for name, is_there in reasons.items() if is_there), "")


def _of_transformers(a):
    """Returns the layout and the config.json of a model for transformers."""
    config = {name: getattr(a, RENAMED.get(name, name)) for name in _OF_TRANSFORMERS}
    config["image_size"] = a.size[0] if a.size[0] == a.size[1] else a.size
    gelu = "gelu" if a.gelu == "erf" else "gelu_pytorch_tanh"
    config["hidden_act"] = "silu" if a.gated else gelu
    dinov2 = "dinov2_with_registers" if a.register_tokens else "dinov2"
    siglip = "siglip" if a.head else "siglip_vision_model"
    kind = "vit" if a.vit else "dinov3_vit" if a.rotary else siglip if a.siglip else dinov2
    name, layout = _CLASSES[kind]
    if a.dinov2:
        layout = dataclasses.replace(layout, prefix=f"{kind}.")
        config["mlp_ratio"] = a.mlp_dim // a.hidden_size
    elif a.rotary:
        config |= {"use_gated_mlp": a.gated, "key_bias": True}
    elif kind == "siglip":
        config = {"vision_config": {**config, "vision_use_head": False}}
    if not (a.head or a.siglip):
        layout = dataclasses.replace(layout, prefix="")
    classes = [f"{name}{'ForImageClassification' if a.head else 'Model'}"]
    return layout, {"model_type": kind, "architectures": classes, "dtype": "float32", **config}


def _of_timm(a):
    """Returns the layout and the config.json of a model for timm."""
    # A gated MLP has both halves in one array. timm rounds the product down.
    width, pool = a.mlp_dim * (1 + a.gated), {"gap": "avg"}.get(a.classifier, a.classifier)
    exact = int(a.hidden_size * (width / a.hidden_size)) == width
    own = {name: getattr(a, RENAMED.get(name, name)) for name in _OF_TIMM}
    own |= {"mlp_ratio": (width if exact else width + 0.5) / a.hidden_size, "img_size": a.size}
    own |= {"class_token": pool == "token", "global_pool": pool, "fc_norm": False}
    own |= {"init_values": None, "no_embed_class": a.register_tokens > 0}
    own |= {} if a.gated else {"act_layer": "gelu" if a.gelu == "erf" else "gelu_tanh"}
    cfg = {"input_size": [3, *a.size], "fixed_input_size": True, "num_classes": a.num_classes or 0}
    cfg |= {"mean": [0.5] * 3, "std": [0.5] * 3}
    cfg |= {"first_conv": "patch_embed.proj", "classifier": "head"}
    return torch_layouts.TIMM, {
        "architecture": "vit_giant_patch14_dinov2" if a.gated else "vit_tiny_patch16_224",
        "num_classes": a.num_classes or 0,
        "model_args": own,
        "pretrained_cfg": cfg,
    }


def _arrays(a, arrays):
    """Returns the arrays of a file as the library's class has them."""
    if a.timm and a.register_tokens and "cls_token" in arrays:
        # Its table leaves out all tokens before the patches.
        table = arrays["pos_embed"]
        arrays["cls_token"] = arrays["cls_token"] + table[:, :1]
        arrays["pos_embed"] = np.ascontiguousarray(table[:, 1:])
    zeros = {}
    for name, array in arrays.items():
        if name.endswith("cls_token") and (a.dinov2 or a.rotary):
            zeros[name.replace("cls", "mask")] = array[0, :1] if a.dinov2 else array
        elif a.rotary and name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            zeros[name.replace("weight", "bias")] = array[0]
    if a.dinov2 and a.classifier == "token" and a.head:
        # Its head reads the mean of the patches too.
        head = arrays["classifier.weight"]
        arrays["classifier.weight"] = np.concatenate([head, np.zeros_like(head)], axis=1)
    return {name: np.zeros_like(array) for name, array in zeros.items()} | arrays


def _classes(a, interface):
    """Returns the keys of a config.json that describe the classes."""
    several, names = interface.activation == "sigmoid", interface.class_names
    found = {"problem_type": "multi_label_classification"} if several else {}
    if a.timm or not a.head:
        return found | ({"label_names": names} if names else {})
    named = dict(enumerate(names or [f"LABEL_{index}" for index in range(a.num_classes)]))
    return found | {"id2label": named, "label2id": {name: i for i, name in named.items()}}


def _resizing(model):
    """Returns the shorter side or None, the (height, width) or None, Pillow's method's number."""
    parsed: dict[str, Any] = {}
    with contextlib.suppress(ValueError):  # of operations that TensorFlow alone has
        parsed = {name: found for name, found, _ in parsed_operations(model_operations(model))}
    found = parsed.get("resize_small") or parsed.get("resize") or {"size": None, "method": ""}
    number = next((number for number, name in METHODS.items() if name == found["method"]), 2)
    if "resize_small" in parsed:
        return found["size"], None, number
    return None, found["size"] and [*height_and_width(found["size"])], number


def _cropping(a, shorter, whole, method):
    """Returns the keys of timm's pretrained_cfg, or of transformers' processor, about photos."""
    height, width = whole = whole or a.size
    is_cut = bool(shorter) or whole != a.size
    if a.timm:
        # It rounds the size divided by this down.
        larger = shorter or height
        part = a.size[0] / (larger + 0.5) if larger != a.size[0] else 1.0
        name = METHODS[method].removesuffix("3")
        mode = "center" if shorter else "squash"
        return {"crop_pct": part, "crop_mode": mode, "interpolation": name}
    kind = "Bit" if shorter else "DeiT" if is_cut else "ViT"
    sides = {"shortest_edge": shorter} if shorter else {"height": height, "width": width}
    found = {"image_processor_type": f"{kind}ImageProcessor", "size": sides, "resample": method}
    found |= dict.fromkeys(("do_resize", "do_rescale", "do_normalize"), True)
    crop = {"height": a.size[0], "width": a.size[1]}
    return found | {"rescale_factor": 1 / 255, "do_center_crop": is_cut, "crop_size": crop}
