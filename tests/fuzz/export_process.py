"""`main` exports a model of a `.keras` file: FORMAT SOURCE TARGET."""

import keras

import keras_vit
from keras_vit import export

EXPORTS = {
    "npz": keras_vit.save_checkpoint,
    "tflite": export.to_tflite,
    "hub": export.to_hub,
    "keras": lambda model, path: model.save(path),
}


def main(arguments):
    name, source, target = arguments
    EXPORTS[name](keras.saving.load_model(source, compile=False), target)
    return 0
