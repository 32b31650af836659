"""`metrics.csv` is read whole, or its damage named."""

import pytest

from keras_vit.training.reporting.metrics_csv import read_metrics


def test_half_a_row_at_the_end_is_passed_over_and_other_damage_named(tmp_path):
    file, good = tmp_path / "metrics.csv", b"step,loss,eval_top1\r\n10,0.5,\r\n20,0.25,0.75\r\n"
    for rest in (b"", b"30", b"30,0.1,0.9", b"30,0.1,0.91234\xff"):
        file.write_bytes(good + rest)
        expected = {"loss": [(10, 0.5), (20, 0.25)], "eval_top1": [(20, 0.75)]}
        assert read_metrics(file) == expected, rest
    for old, new in (
        (b"step", b"steps"),
        (b"20", b"x"),
        (b"0.25", b"one"),
        (b"0.5,", b""),
        (b"0.5,", b"0.5,1,1"),
        (b"0.5", b"\0"),
        (b"0.5", b"\xff"),
        (b"0.5", b"1" * 200_000 + b"x"),
    ):
        file.write_bytes(good.replace(old, new))
        with pytest.raises(ValueError, match=r"metrics\.csv is damaged after \d rows: "):
            read_metrics(file)
