import pytest
import tensorflow as tf

from training.config_keys import complete
from training.engines.tensorflow.strategies import create_strategy
from training.errors import UsageError


@pytest.mark.parametrize("capability, refused", [((9, 0), False), ((10, 0), True), ((12, 0), True)])
def test_xla_is_refused_where_it_crashes(monkeypatch, capability, refused):
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [gpu])
    details = {"compute_capability": capability, "device_name": "NVIDIA B200"}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    config = complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    create_strategy(config)
    config.jit_compile = True
    if refused:
        with pytest.raises(UsageError, match=r"B200\. Train with KERAS_BACKEND=jax"):
            create_strategy(config)
    else:
        create_strategy(config)
