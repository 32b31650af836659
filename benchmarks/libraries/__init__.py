"""The contestants: one module each, `prepare(case)` -> (step, facts).

`step()` runs one batch, or one update, and returns when its result has arrived.
`facts` is a dict; `parameters` is the number of trained values, which must agree.
"""

# What has to be installed for each. The first is the reference of every ratio.
PACKAGES = {
    "keras_vit": ("tensorflow",),
    "keras_vit_inference": ("tensorflow",),
    "keras_hub": ("tensorflow", "keras_hub"),
    "timm": ("torch", "timm"),
    "jax": ("jax", "flax", "optax"),
    "gemm_tensorflow": ("tensorflow",),
    "gemm_torch": ("torch",),
}
