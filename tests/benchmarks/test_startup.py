"""What is timed before the first step."""

from benchmarks.startup import train


def test_a_run_is_timed_until_its_first_step(tmp_path):
    facts, _ = train(str(tmp_path))
    assert 0 < facts["imported"] < facts["first_step"] < 300
