"""The functions that scripts call by `training.NAME`."""

import pytest

from keras_vit import training


@pytest.mark.parametrize("name", training.__all__)
def test_doors_lead_to_functions(name):
    assert callable(getattr(training, name)) and getattr(training, name).__name__ == name


def test_what_scripts_call():
    assert {"build_loss", "build_optimizer", "evaluate", "load_dataset", "predict", "train"} <= {
        *training.__all__
    }
    with pytest.raises(AttributeError, match="no attribute 'sweep'"):
        _ = training.sweep
