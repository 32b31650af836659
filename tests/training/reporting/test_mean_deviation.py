"""Results of several runs, as the paper prints them."""

import pytest

from training.reporting.mean_deviation import MeanDeviation


def test_the_deviation_is_the_sample_one():
    result = MeanDeviation.of([0.80, 0.81, 0.82])
    assert result == pytest.approx((0.81, 0.01))
    assert str(result.percent) == "81.00 ± 1.00"
    assert str(MeanDeviation.of([0.5, 0.5]).percent) == "50.00 ± 0.00"


def test_one_run_has_none():
    assert MeanDeviation.of([0.5]) == (0.5, None)
    assert str(MeanDeviation.of([0.5]).percent) == "50.00"
