"""The Vision Transformer in Flax, layer for layer as the original JAX release computes it.

The original is not on PyPI, so this stands in for it as a contestant: the same
Flax modules (`nn.Conv` for patches, `nn.MultiHeadDotProductAttention`, `nn.LayerNorm`,
tanh GELU), the same order, the same parameters.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp


class MlpBlock(nn.Module):
    mlp_dim: int
    dtype: Any

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        x = nn.gelu(nn.Dense(self.mlp_dim, dtype=self.dtype)(x))
        return nn.Dense(width, dtype=self.dtype)(x)


class EncoderBlock(nn.Module):
    mlp_dim: int
    num_heads: int
    dtype: Any

    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(dtype=self.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(
            num_heads=self.num_heads, dtype=self.dtype, deterministic=True
        )(y, y)
        y = nn.LayerNorm(dtype=self.dtype)(x)
        return x + MlpBlock(self.mlp_dim, self.dtype)(y)


class VisionTransformer(nn.Module):
    """Images, (batch, height, width, 3), to float32 logits, (batch, num_classes)."""

    patch_size: int
    hidden_size: int
    mlp_dim: int
    num_heads: int
    num_layers: int
    num_classes: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, images):
        patch = (self.patch_size, self.patch_size)
        x = nn.Conv(self.hidden_size, patch, strides=patch, padding="VALID", dtype=self.dtype)(
            images
        )
        batch, rows, columns, channels = x.shape
        x = x.reshape(batch, rows * columns, channels)
        token = self.param("cls", nn.initializers.zeros, (1, 1, channels))
        x = jnp.concatenate([jnp.tile(token.astype(x.dtype), (batch, 1, 1)), x], axis=1)
        positions = self.param(
            "pos_embedding", nn.initializers.normal(0.02), (1, x.shape[1], channels)
        )
        x = x + positions.astype(x.dtype)
        for _ in range(self.num_layers):
            x = EncoderBlock(self.mlp_dim, self.num_heads, self.dtype)(x)
        x = nn.LayerNorm(dtype=self.dtype)(x)[:, 0]
        return nn.Dense(self.num_classes, kernel_init=nn.initializers.zeros)(x.astype(jnp.float32))
