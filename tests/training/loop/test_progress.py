"""What the log shows of a run's progress."""

import logging

from keras_vit.training.loop import training_progress


def test_the_first_row_has_no_speed_and_the_next_have(caplog):
    caplog.set_level(logging.INFO, training_progress.logger.name)
    with training_progress.Progress(100, 0, 8) as shown:
        for step in (25, 50):
            shown.advance(step, 5.0, 1.0)
            shown.log({"loss": 1.0, "images_per_second": shown.images_per_second()})
    assert [record.getMessage() for record in caplog.records] == [
        "step 25/100  loss 1",
        "step 50/100  loss 1  images_per_second 40  left 00:00:10",
    ]
