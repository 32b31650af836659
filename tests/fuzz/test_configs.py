"""Any value of any key: a clear error, or a first step that runs."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from keras_vit.training.config import schema
from keras_vit.training.config.schema import DEFAULTS
from keras_vit.training.errors import TrainingError, UsageError
from keras_vit.training.loop import trainer

SEED = int(os.environ.get("FUZZ_SEED", "0"))
FACTOR = float(os.environ.get("FUZZ", "1"))

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 40),
    st.floats(),
    st.sampled_from([0.0, 1.0, 1e308, -1e308, 1e-300, 2.0**31, 2**31, 10**12]),
    st.text(max_size=20),
    st.binary(max_size=8),
    st.lists(st.integers(-2, 5), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
MODEL = (
    "image_size patch_size hidden_size num_heads mlp_dim num_layers dropout_rate "
    "attention_dropout_rate stochastic_depth_rate classifier position_embedding register_tokens "
    "gelu layer_norm_epsilon attention remat flash_attention"
)
KEYS = sorted(DEFAULTS.keys() | {f"model.{name}" for name in MODEL.split()})


def fuzzed(examples):
    def decorate(function):
        limits = settings(
            max_examples=max(1, int(examples * FACTOR)),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        return seed(SEED)(limits(function))

    return decorate


def with_value(config, name, value):
    """Returns a config as a dict, with another value of one key."""
    section, _, last = name.rpartition(".")
    config = config.to_dict()
    (config[section] if section else config)[last] = value
    return config


def test_any_value_is_understood_or_refused(tally, tiny):
    @fuzzed(300)
    @given(st.sampled_from(KEYS), VALUES)
    def check(name, value):
        try:
            schema.complete(with_value(tiny(), name, value))
            tally("config keys", "read")
        except UsageError as error:
            assert str(error)
            tally("config keys", "refused")

    check()


@pytest.mark.long
def test_what_is_understood_runs_or_is_refused(tally, tiny):
    @fuzzed(3)
    @given(st.sampled_from(KEYS), VALUES)
    def check(name, value):
        config = tiny(total_steps=8, eval_split="", steps_per_call=1, checkpoint_every_steps=0)
        with tempfile.TemporaryDirectory() as folder:
            try:
                trainer.train(with_value(config, name, value), folder)
                tally("config keys, trained", "read")
            except TrainingError as error:
                assert str(error)
                tally("config keys, trained", "refused")

    check()
