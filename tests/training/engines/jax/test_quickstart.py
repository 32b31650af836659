"""Both engines, from the same first weights, lose the same in 60 steps of the quickstart."""

import csv

import numpy as np
import pytest

pytest.importorskip("orbax.checkpoint", reason="make test-jax installs it")


def test_both_engines_lose_the_same(launch, finish, jax_environment, tmp_path):
    import keras

    import keras_vit
    from training.configs import quickstart

    config = quickstart.get_config()
    model = {k: v for k, v in config.model.to_dict().items() if k != "name"}
    keras.utils.set_random_seed(0)
    keras_vit.save_checkpoint(
        keras_vit.VisionTransformer(**model, num_classes=10), tmp_path / "first.npz"
    )
    losses = {}
    for engine, environment in (("tensorflow", {}), ("jax", jax_environment())):
        options = [
            "--config=quickstart",
            f"--config.checkpoint={tmp_path / 'first.npz'}",
            "--config.checkpoint_head=keep",
            "--config.total_steps=60",
            f"--config.optimizer.total_steps={config.total_steps}",
            "--config.steps_per_call=5",
            "--config.log_every_steps=5",
            "--config.eval_every_steps=60",
            f"--workdir={tmp_path / engine}",
        ]
        finish(launch("-m", "training", *options, environment=environment))
        with open(tmp_path / engine / "metrics.csv") as file:
            losses[engine] = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
    assert len(losses["jax"]) == 12
    assert losses["jax"][-1] < 0.7 * losses["jax"][0]
    np.testing.assert_allclose(losses["jax"], losses["tensorflow"], rtol=1e-4)
