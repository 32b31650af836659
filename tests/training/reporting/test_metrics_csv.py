"""`metrics.csv` is read whole, or its damage named."""

import pytest

from keras_vit.training.reporting.metrics_csv import read_metrics

GOOD = b"step,loss,eval_top1\r\n10,0.5,\r\n20,0.25,0.75\r\n"


@pytest.fixture
def read(tmp_path):
    def read(content):
        file = tmp_path / "metrics.csv"
        file.write_bytes(content)
        return read_metrics(file)

    return read


@pytest.mark.parametrize("rest", [b"", b"30", b"30,0.1,0.9", b"30,0.1,0.91234\xff"])
def test_half_a_row_at_the_end_is_passed_over(read, rest):
    assert read(GOOD + rest) == {"loss": [(10, 0.5), (20, 0.25)], "eval_top1": [(20, 0.75)]}


@pytest.mark.parametrize(
    "content",
    [
        GOOD.replace(b"step", b"steps"),
        GOOD.replace(b"20", b"x"),
        GOOD.replace(b"0.25", b"one"),
        GOOD.replace(b"0.5,", b""),
        GOOD.replace(b"0.5,", b"0.5,1,1"),
        GOOD.replace(b"0.5", b"\0"),
        GOOD.replace(b"0.5", b"\xff"),
        GOOD.replace(b"0.5", b"1" * 200_000 + b"x"),
    ],
)
def test_damage_is_named(read, content):
    with pytest.raises(ValueError, match=r"metrics\.csv is damaged after \d rows: "):
        read(content)
