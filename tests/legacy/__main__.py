"""`python -m tests.legacy`: fine-tunes an exported module under TensorFlow 2.15 and tfa.

tensorflow-addons, whose optimizers the original's Keras ports train with, needs TensorFlow 2.13
to 2.15. This builds a second environment for them (.venv-legacy, once), exports a small module
from this one, and runs tests/legacy/fine_tune.py on it there.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tests.other_environments import python_of


def main():
    python = shutil.which("python3.11") or shutil.which("python3.10")
    if (3, 10) <= sys.version_info[:2] <= (3, 11):
        python = sys.executable
    if not python:
        sys.exit("error: TensorFlow 2.15 needs Python 3.10 or 3.11; neither was found.")
    python = python_of(".venv-legacy", "requirements-legacy.lock", python)
    with tempfile.TemporaryDirectory() as directory:
        _export(pathlib.Path(directory))
        script = pathlib.Path(__file__).with_name("fine_tune.py")
        command = [python, "-W", "ignore", script, directory]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        return subprocess.run(command, env=environment, check=False).returncode


def _export(directory):
    from keras_vit.training.io.quiet_start import import_tensorflow

    import_tensorflow()
    import keras
    import numpy as np

    import keras_vit
    from benchmarks.errors_in_runtimes import with_noise
    from keras_vit import export
    from tests.tiny_vit import tiny_vit

    sizes = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "mlp_dim": 64}
    model = with_noise(tiny_vit(**sizes, dropout_rate=0.1))
    model.get_layer("head").kernel.regularizer = keras.regularizers.L2(1e-3)
    export.to_hub(model, directory / "fixed")
    export.to_hub(model, directory / "any", resolution="any")
    images = np.random.default_rng(1).uniform(0, 1, (16, 32, 32, 3)).astype("float32")
    logits = keras.ops.convert_to_numpy(model(images * 2 - 1, training=False))
    targets = np.eye(5, dtype="float32")[np.arange(16) % 5]
    segmenter = with_noise(keras_vit.Segmenter(tiny_vit(**sizes, num_classes=None), 3))
    export.to_hub(segmenter, directory / "masks")
    masks = keras.ops.convert_to_numpy(segmenter(images * 2 - 1, training=False))
    np.savez(directory / "data.npz", images=images, logits=logits, targets=targets, masks=masks)


if __name__ == "__main__":
    sys.exit(main())
