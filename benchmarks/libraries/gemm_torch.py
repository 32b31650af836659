"""A large matrix product in PyTorch: the peak that models are held against."""

import torch

SIDE = 2048


def prepare(case):
    torch.set_num_threads(case.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, case.precision)
    left, right = (torch.randn(SIDE, SIDE, device=device).to(dtype) for _ in range(2))
    return lambda: (left @ right)[0, 0].item(), {"flops": 2 * SIDE**3}
