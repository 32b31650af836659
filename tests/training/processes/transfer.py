"""Fine-tunes a small model in every way there is, and asserts which weights move and how far.

`transfer.py FOLDER [STATE]`: the folder gets the state of a run with LoRA, and `lora.npz`, what is
in it; STATE is such a folder of the other backend, from which a run goes on.
"""

import pathlib

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.training.recipes.model import build_model
from keras_vit.training.recipes.trained_weights import depths
from tests.tiny_vit import tiny_vit
from tests.training.small_engine import random_batches, small_engine

CLASSES, LAYERS = 5, 2
MODEL = tiny_vit(patch_size=8, num_layers=LAYERS, num_classes=CLASSES).arguments
DATA = random_batches(4, 16)
IMAGES = DATA["image"]
# Rates that move weights by much more than their last bit.
SGD = {"name": "sgd", "base_lr": 5.0, "total_steps": 100}


class Run:
    """A run from the weights of a file; `weights` are its own by path, whole."""

    def __init__(self, folder, directory="none", optimizer=None, **changes):
        changes |= {"checkpoint": str(folder / "start.keras"), "checkpoint_head": "keep"}
        changes |= {"optimizer": SGD | (optimizer or {}), "model": MODEL}
        self.engine = small_engine(lambda config: build_model(config, CLASSES), **changes)
        self.engine.restore(folder / directory)
        rest = tf.data.Dataset.from_tensor_slices(DATA).skip(self.engine.step)
        self.batches = self.engine.make_batches(lambda *_: rest)

    def update(self, count=1):
        for _ in range(count):
            self.engine.train(self.batches, 1)
        return self

    @property
    def weights(self):
        with self.engine.averaged_weights() as model:
            return {each.path: keras.ops.convert_to_numpy(each) for each in model.weights}

    @property
    def trained(self):
        return {each.path for each in self.engine.model.trainable_variables}


def same(weights, others):
    return {path for path in weights if np.array_equal(weights[path], others[path])}


def without_key_biases(paths):
    """Leaves out what has no gradient but rounding: softmax does not see it."""
    return {path for path in paths if not path.endswith("key/bias")}


def layer_decay(folder):
    plain, decayed = (Run(folder, optimizer={"layer_decay": decay}) for decay in (1.0, 0.5))
    before = plain.weights
    after, slower = plain.update().weights, decayed.update().weights
    depth_of = depths(plain.engine.model)
    assert {depth_of[path] for path in before} == set(range(LAYERS + 2))
    for path in without_key_biases(before):
        step, scaled = after[path] - before[path], slower[path] - before[path]
        ratio = np.vdot(scaled, step) / np.vdot(step, step)
        expected = 0.5 ** (LAYERS + 1 - depth_of[path])
        np.testing.assert_allclose(ratio, expected, rtol=1e-5, err_msg=path)
    assert before.keys() == decayed.trained


def freezing(folder):
    for freeze, moving in (
        ({"head_only": True}, lambda path: path.startswith("head/")),
        ({"blocks": 1}, lambda path: path.startswith(("encoder_block_01/", "encoder_n", "head/"))),
        ({"layers": "encoder_block_0?/mlp, embedding"}, lambda path: "/mlp/" not in path),
    ):
        run = Run(folder, freeze=freeze, ema_decay=0.9)
        before = run.weights
        expected = {path for path in before if moving(path) and not path.startswith("embedding/")}
        assert run.trained == expected, freeze
        assert len(run.engine.optimizer.first_moments) == len(expected)
        still = without_key_biases(same(before, run.update(2).weights))
        assert still == without_key_biases(before.keys() - expected), freeze


def until_step(folder):
    recipe = {"optimizer": {"clip_norm": 0.1, "base_lr": 0.1}, "ema_decay": 0.5}
    forever = Run(folder, **recipe, freeze={"head_only": True})
    run = Run(folder, **recipe, freeze={"head_only": True, "until_step": 2})
    before, after, expected = run.weights, run.update(2).weights, forever.update(2).weights
    assert len(run.trained) == len(before) > len(forever.trained)
    assert same(before, after) == {path for path in before if not path.startswith("head/")}
    # The head trains as if nothing else were there, clipped to the norm of its own gradient.
    np.testing.assert_allclose(after["head/kernel"], expected["head/kernel"], atol=1e-6)
    assert not without_key_biases(same(after, run.update().weights))


def lora(folder, other):
    changes = {"lora": {"rank": 2, "alpha": 4.0}}
    run = Run(folder, "lora", **changes)
    before = run.weights
    factors = {path for path in before if path.split("/")[-1] in ("lora_kernel_a", "lora_kernel_b")}
    assert len(factors) == 2 * 6 * LAYERS
    moving = factors | {"head/kernel", "head/bias"}
    assert run.trained == moving
    with run.engine.averaged_weights() as model:
        start = keras.saving.load_model(folder / "start.keras")
        np.testing.assert_allclose(model(IMAGES[0]), start(IMAGES[0]), atol=1e-5)
    # The gradient of A is 0 as long as B is.
    still = {path for path in factors if path.endswith("_a")}
    assert same(before, run.update().weights) & moving == still
    run.update()  # The keys' factors have a gradient: only their bias has none.
    assert same(before, run.weights) == before.keys() - moving
    run.engine.save({})
    np.savez(folder / "lora.npz", **run.weights)

    with run.engine.averaged_weights() as model:
        model.save(folder / "merged.keras")
        merged = keras.saving.load_model(folder / "merged.keras")
        logits = np.array(model(IMAGES[0]))
        np.testing.assert_allclose(merged(IMAGES[0]), logits, atol=1e-5 * np.abs(logits).max())
        dense = model.get_layer("encoder_block_01").mlp.hidden_dense
        product = 2.0 * np.array(dense.lora_kernel_a) @ np.array(dense.lora_kernel_b)
    path = "encoder_block_01/mlp/hidden_dense/kernel"
    found = {each.path: keras.ops.convert_to_numpy(each) for each in merged.trainable_variables}
    assert found.keys() == before.keys() - factors
    np.testing.assert_allclose(found[path], before[path] + product, atol=1e-5)

    # All of it goes on from the state, and nothing from the file that the run started from.
    keras_vit.VisionTransformer(**MODEL).save(folder / "start.keras")
    resumed = Run(folder, "lora", **changes)
    assert resumed.engine.step == 2 and same(resumed.weights, run.weights) == before.keys()
    assert same(resumed.update(2).weights, run.update(2).weights) == before.keys()
    if other:
        moved = Run(folder, other / "lora", **changes)
        assert moved.engine.step == 2
        assert same(moved.weights, np.load(other / "lora.npz")) == before.keys()


def main(*folders):
    folder, other = [*map(pathlib.Path, folders), None][:2]
    keras.utils.set_random_seed(0)
    start = keras_vit.VisionTransformer(**MODEL)
    for variable in start.trainable_variables:
        # No weight is 0, where nothing could be seen of a factor.
        variable.assign(variable + 0.1 * keras.random.normal(variable.shape))
    start.save(folder / "start.keras")
    for check in (layer_decay, freezing, until_step):
        check(folder)
    lora(folder, other)
