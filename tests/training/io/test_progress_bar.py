"""Progress is told without changing what is gone through."""

import logging

import tensorflow as tf

from keras_vit.training.io import progress_bar as module
from keras_vit.training.io.progress_bar import track


def test_a_log_has_a_line_now_and_then(monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="keras_vit")
    assert list(track(range(5), "counting")) == [0, 1, 2, 3, 4] and not caplog.messages
    monkeypatch.setattr(module, "LOG_EVERY_SECONDS", -1.0)
    dataset = tf.data.Dataset.range(2)
    assert [int(item) for item in track(dataset, "counting")] == [0, 1]
    odd = dataset.filter(lambda item: item % 2 == 1)
    assert [int(item) for item in track(odd, "counting")] == [1]
    assert caplog.messages == ["counting: 0 of 2", "counting: 1 of 2", "counting: 0"]


def test_a_terminal_has_a_bar(monkeypatch):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    assert list(track(range(3), "counting")) == [0, 1, 2]
