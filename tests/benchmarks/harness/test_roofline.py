import pytest

from benchmarks.harness.roofline import least_seconds


def test_each_peak_bounds_alone():
    arithmetic, traffic = least_seconds("v5e:2x2", flops=197e12, hbm_bytes=2 * 819e9)
    assert (arithmetic, traffic) == (pytest.approx(1), pytest.approx(2))


def test_an_unknown_chip_is_refused():
    with pytest.raises(ValueError, match=r"v5e.*Received: 'v9:2x2'"):
        least_seconds("v9:2x2", 1.0, 1.0)
