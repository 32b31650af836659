"""A run of ImageNet's size, and what is timed before the first step of a run."""

import pytest

from benchmarks.dress_rehearsal import rehearse
from benchmarks.startup import train


@pytest.mark.parametrize(
    "part", [pytest.param(1000, marks=pytest.mark.long), pytest.param(50, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(3600)
def test_killed_resumed_and_evaluated(part, tmp_path):
    found = dict(rehearse(tmp_path, part, epochs=3, batch_size=32))
    assert found["images written"].startswith(f"{1_281_167 // part + 50_000 // part:,} in")
    assert found["evaluated"].startswith(f"{50_000 // part:,} images, top-1 ")
    # Planted classes are learned: chance is a tenth at most.
    assert float(found["evaluated"].split("top-1 ")[1].split()[0]) > 20


@pytest.mark.long
def test_a_run_is_timed_until_its_first_step(tmp_path):
    facts, _ = train(str(tmp_path))
    assert 0 < facts["imported"] < facts["first_step"] < 300
