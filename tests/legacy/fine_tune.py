"""Run by `python -m tests.legacy` under TensorFlow 2.15: every way of training must move all.

Each optimizer fits the same 16 images in one batch. The losses compared are those of all images
without dropout, before and after, so that neither the order of the images nor dropout decides.
"""

import logging
import pathlib
import sys

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa
import tensorflow_hub as hub

# The wrappers of this version take optimizers of the old kind only.
old_adam = tf.keras.optimizers.legacy.Adam
OPTIMIZERS = {
    "tfa AdamW": lambda: tfa.optimizers.AdamW(weight_decay=1e-4, learning_rate=1e-3),
    "tfa LAMB": lambda: tfa.optimizers.LAMB(learning_rate=1e-2),
    "tfa MovingAverage": lambda: tfa.optimizers.MovingAverage(old_adam(1e-3)),
    "tfa SWA": lambda: tfa.optimizers.SWA(old_adam(1e-3), start_averaging=0, average_period=1),
    "keras Adam": lambda: tf.keras.optimizers.Adam(1e-3),
}

# After so many steps every optimizer above has left 1 to 5 % of the loss.
STEPS = 40
LARGEST_RATIO = 0.5


def main(directory):
    directory = pathlib.Path(directory)
    data = np.load(directory / "data.npz")
    images, logits, targets = data["images"], data["logits"], data["targets"]
    failures = []
    # A predict function for each model is what this program is about.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)

    def check(name, good, detail):
        print(f"{'ok  ' if good else 'FAIL'}  {name}: {detail}")
        if not good:
            failures.append(name)

    print(f"TensorFlow {tf.__version__}, tensorflow-addons {tfa.__version__}")
    for name in ("fixed", "any"):
        error = np.abs(hub.load(str(directory / name))(images).numpy() - logits).max()
        check(f"hub.load, {name} resolution", error < 1e-5, f"largest error {error:.1e}")
    for name, optimizer in OPTIMIZERS.items():
        tf.keras.utils.set_random_seed(0)
        layer = hub.KerasLayer(str(directory / "fixed"), trainable=True)
        model = tf.keras.Sequential([tf.keras.Input((32, 32, 3)), layer])
        error = np.abs(model.predict(images, verbose=0) - logits).max()
        before = [v.numpy() for v in layer.trainable_variables]
        model.compile(optimizer(), tf.keras.losses.CategoricalCrossentropy(from_logits=True))
        first = model.evaluate(images, targets, verbose=0)
        model.fit(images, targets, batch_size=len(images), epochs=STEPS, verbose=0)
        last = model.evaluate(images, targets, verbose=0)
        pairs = zip(before, layer.trainable_variables, strict=True)
        moved = sum(np.any(old != new.numpy()) for old, new in pairs)
        check(
            f"hub.KerasLayer with {name}",
            error < 1e-5 and moved == len(before) > 0 and last < LARGEST_RATIO * first,
            f"{moved} of {len(before)} variables moved, loss {first:.3f} to {last:.3f}, "
            f"{len(layer.losses)} regularization loss",
        )
    tf.keras.utils.set_random_seed(0)
    layer = hub.KerasLayer(str(directory / "masks"), trainable=True)
    model = tf.keras.Sequential([tf.keras.Input((32, 32, 3)), layer])
    error = np.abs(model.predict(images, verbose=0) - data["masks"]).max()
    labels = (images.mean(-1) * 3).astype("int32")
    before = [v.numpy() for v in layer.trainable_variables]
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tfa.optimizers.AdamW(weight_decay=1e-4, learning_rate=3e-3), loss)
    first = model.evaluate(images, labels, verbose=0)
    model.fit(images, labels, batch_size=len(images), epochs=STEPS, verbose=0)
    last = model.evaluate(images, labels, verbose=0)
    moved = sum(
        np.any(old != new.numpy())
        for old, new in zip(before, layer.trainable_variables, strict=True)
    )
    check(
        "hub.KerasLayer of masks with tfa AdamW",
        error < 1e-4 and moved == len(before) > 0 and last < 0.7 * first,
        f"{moved} of {len(before)} variables moved, loss {first:.3f} to {last:.3f}, "
        f"largest error before {error:.1e}",
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
