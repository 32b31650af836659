import keras
import numpy as np
import pytest

from keras_vit.training.config import schema
from keras_vit.training.config.overrides import load_config
from keras_vit.training.loop import trainer
from keras_vit.training.recipes.model import build_model
from tests.training.runs import column


def tiny(data_dir, **overrides):
    config = load_config("masked:small,digits,steps=12,size=16")
    config.model.update(hidden_size=16, mlp_dim=32, num_heads=2, num_layers=2)
    config.optimizer.base_lr = 0.01
    config.update(batch_size=32, data_dir=data_dir, steps_per_call=4, log_every_steps=4)
    config.update(overrides)
    return config


@pytest.mark.long
def test_a_run_learns_reproducibly_and_is_fine_tuned(data_dir, tmp_path):
    run = tmp_path / "masked"
    trainer.train(tiny(data_dir), run)
    losses = column(run, "loss")
    assert losses[0] == pytest.approx(np.log(512), abs=0.5) and losses[-1] < losses[0] - 1

    # The corruption belongs to the step, however many are in a call and however it is divided.
    trainer.train(tiny(data_dir, steps_per_call=1, accumulation_steps=2), tmp_path / "again")
    np.testing.assert_allclose(column(tmp_path / "again", "loss"), losses, rtol=1e-4)
    compiled = tiny(data_dir, jit_compile="on", accumulation_steps=2)
    assert trainer.train(compiled, tmp_path / "compiled")["loss"] < losses[0] - 1

    config = load_config(f"finetune:{run},digits,size=16,steps=2")
    model = build_model(schema.complete(config), num_classes=10)
    masked = keras.saving.load_model(run / "model.keras")
    assert config.checkpoint == str(run) and model.output.shape == (None, 10)
    assert '"target": "mean_color"' in (run / "config.json").read_text()
    for block in ("encoder_block_00", "encoder_block_01", "class_token", "position_embedding"):
        trained = masked.encoder.get_layer(block).get_weights()
        own = model.get_layer(block).get_weights()
        assert own and all(map(np.array_equal, own, trained))
