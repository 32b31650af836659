"""timm's ViT on PyTorch."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import timm.models.vision_transformer as vision_transformer
import torch

from benchmarks.libraries import LEARNING_RATE, MOMENTUM, Case

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def prepare(case: Case, compile_mode: str | None = None) -> tuple[Callable[[], Any], int]:
    """The model, compiled in this mode of `torch.compile`."""
    torch.manual_seed(0)
    a = case.arguments
    model = vision_transformer.VisionTransformer(
        img_size=case.image_shape[:2],
        patch_size=a["patch_size"],
        embed_dim=a["hidden_size"],
        depth=a["num_layers"],
        num_heads=a["num_heads"],
        mlp_ratio=a["mlp_dim"] / a["hidden_size"],
        num_classes=a["num_classes"],
    ).to(DEVICE)
    model.set_grad_checkpointing(a.get("remat", False))
    images = torch.tensor(case.images(), device=DEVICE).permute(0, 3, 1, 2).contiguous()
    step = _inference if case.mode == "infer" else _update
    compiled = functools.partial(torch.compile, mode=compile_mode) if case.compiled else lambda x: x
    return step(model, images, case, compiled), sum(p.numel() for p in model.parameters())


# The mode that tries the most.
max_autotune = functools.partial(prepare, compile_mode="max-autotune")


def _inference(model, images, case, compiled):
    model.eval()
    if case.precision == "bfloat16":
        model, images = model.bfloat16(), images.bfloat16()
    forward = compiled(model)

    def step():
        with torch.inference_mode():
            return forward(images).float().cpu()

    return step


def _update(model, images, case, compiled):
    model.train()
    labels = torch.tensor(case.labels(), device=DEVICE, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=MOMENTUM, fused=True)

    @compiled
    def loss_of(images, labels):
        return torch.nn.functional.cross_entropy(model(images).float(), labels)

    def step():
        precision = contextlib.nullcontext()
        if case.precision == "bfloat16":
            precision = torch.autocast(DEVICE, torch.bfloat16)
        optimizer.zero_grad(set_to_none=True)
        with precision:
            loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
