import os
import tempfile

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from keras_vit.training.config import schema
from keras_vit.training.config.schema import DEFAULTS
from keras_vit.training.errors import TrainingError, UsageError
from keras_vit.training.loop import trainer
from tests.fuzz.conftest import SEED, tally

FACTOR = float(os.environ.get("FUZZ", "1"))

VALUES = [st.none(), st.booleans(), st.integers(), st.integers(-3, 40), st.floats()]
VALUES.append(st.sampled_from([0.0, 1.0, 1e308, -1e308, 1e-300, 2.0**31, 2**31, 10**12]))
VALUES += [st.text(max_size=20), st.binary(max_size=8), st.lists(st.integers(-2, 5), max_size=3)]
VALUES.append(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))
MODEL = (
    "image_size patch_size hidden_size num_heads mlp_dim num_layers dropout_rate "
    "attention_dropout_rate stochastic_depth_rate classifier position_embedding register_tokens "
    "mlp gelu layer_norm_epsilon attention remat flash_attention"
)
KEYS = sorted(DEFAULTS.keys() | {f"model.{name}" for name in MODEL.split()})


@pytest.mark.rows((300, False), long=[(3, True)])
def test_any_value_of_any_key_is_refused_or_runs(examples, trained, tiny):
    config = tiny(total_steps=8, eval_split="", steps_per_call=1, checkpoint_every_steps=0)

    def check(name, value):
        changed = config.to_dict()
        section, _, last = name.rpartition(".")
        (changed[section] if section else changed)[last] = value
        try:
            if trained:
                with tempfile.TemporaryDirectory() as folder:
                    trainer.train(changed, folder)
            else:
                schema.complete(changed)
            outcome = "read"
        except TrainingError as error:
            assert str(error) and (trained or isinstance(error, UsageError))
            outcome = "refused"
        tally("config keys, trained" if trained else "config keys", outcome)

    options = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    limits = settings(max_examples=max(1, int(examples * FACTOR)), **options)
    seed(SEED)(limits(given(st.sampled_from(KEYS), st.one_of(VALUES))(check)))()
