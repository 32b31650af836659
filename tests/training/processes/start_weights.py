"""Saves the start weights of every kind of model and the losses of a short run, of one seed.

`start_weights.py FOLDER DATA_DIR` writes `start.npz`; its backend is that of KERAS_BACKEND.
"""

import pathlib

import keras
import numpy as np

import keras_vit
from keras_vit.training.config import overrides
from keras_vit.training.loop import trainer
from keras_vit.training.recipes.trained_weights import adapt_low_rank
from tests.tiny_vit import tiny_vit
from tests.training.runs import column

RESNET = {"num_layers": (1, 1), "width_factor": 0.5}


MODELS = {
    "vit": lambda: tiny_vit(representation_size=8, register_tokens=2),
    "map": lambda: tiny_vit(classifier="map", position_embedding="learned_2d", dropout_rate=0.1),
    "relative": lambda: tiny_vit(position_embedding="relative"),
    "hybrid": lambda: tiny_vit(image_size=32, patch_size=1, resnet=RESNET),
    "axial": lambda: tiny_vit(attention="axial", classifier="gap"),
    "resnet_v2": lambda: keras_vit.ResNetV2(**RESNET, image_size=32),
    "axial_resnet": lambda: keras_vit.models.AxialResNet(**RESNET, image_size=32, num_groups=2),
    "masked": lambda: keras_vit.MaskedPatchPrediction(tiny_vit(num_classes=None)),
    "low_rank": tiny_vit,  # Its factors are added below.
}


def main(folder, data_dir):
    folder, found = pathlib.Path(folder), {}
    for name, make in MODELS.items():
        keras.utils.set_random_seed(3)
        model = make()
        if name == "low_rank":
            adapt_low_rank(model, rank=2)
        found |= {f"{name}/{weight.path}": weight.numpy() for weight in model.trainable_weights}
    config = overrides.load_config(str(pathlib.Path(__file__).with_name("tiny.py")))
    config.update(data_dir=data_dir, eval_split="", total_steps=15, log_every_steps=1)
    config.steps_per_call, config.model.dropout_rate = 1, 0.0
    trainer.train(config, folder / "run")
    found["losses"] = column(folder / "run", "loss")
    np.savez(folder / "start.npz", **found)
