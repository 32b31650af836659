"""The libraries: one module each, `prepare(case)` -> (step, facts).

`step()` runs one batch, or one update, and returns when its result has arrived. `facts` is a dict:
`parameters`, the number of trained values, must agree between libraries. `matrix_product` of some
modules is the same for a large product: the peak that models are held against, with its `flops`.

Functions named `to_…` take a case and a folder, and write the library's own files of the model:
`float32` and, where the library quantizes by itself, `int8`, with the suffix of their format.
"""

# What has to be installed for each module, beside Keras's backend.
PACKAGES = {
    "keras_vit": (),
    "keras_hub": ("keras_hub",),
    "timm": ("torch", "timm"),
    "jax": ("jax", "flax", "optax"),
}
PRODUCT_SIDE = 2048
