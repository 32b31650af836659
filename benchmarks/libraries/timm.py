"""timm's ViT on PyTorch."""

import contextlib

import timm.models.vision_transformer as vision_transformer
import torch

from benchmarks.libraries import batches
from benchmarks.libraries.recipe import LEARNING_RATE, MOMENTUM


def prepare(case):
    torch.set_num_threads(case.threads)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = case.arguments
    model = vision_transformer.VisionTransformer(
        img_size=case.image_shape[1:3],
        patch_size=a["patch_size"],
        embed_dim=a["hidden_size"],
        depth=a["num_layers"],
        num_heads=a["num_heads"],
        mlp_ratio=a["mlp_dim"] / a["hidden_size"],
        num_classes=a["num_classes"],
    ).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    images = torch.tensor(batches.images(case), device=device).permute(0, 3, 1, 2).contiguous()
    step = _inference(model, images, case) if case.mode == "infer" else _update(model, images, case)
    return step, {"parameters": parameters}


def _inference(model, images, case):
    model.eval()
    if case.precision == "bfloat16":
        model, images = model.bfloat16(), images.bfloat16()
    forward = torch.compile(model) if case.compiled else model

    def step():
        with torch.inference_mode():
            return forward(images).float().cpu()

    return step


def _update(model, images, case):
    model.train()
    labels = torch.tensor(batches.labels(case), device=images.device, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=MOMENTUM, fused=True)

    def loss_of(images, labels):
        return torch.nn.functional.cross_entropy(model(images).float(), labels)

    if case.compiled:
        loss_of = torch.compile(loss_of)

    def step():
        precision = contextlib.nullcontext()
        if case.precision == "bfloat16":
            precision = torch.autocast(images.device.type, torch.bfloat16)
        optimizer.zero_grad(set_to_none=True)
        with precision:
            loss = loss_of(images, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
