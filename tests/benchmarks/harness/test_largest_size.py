"""The search for the largest size that fits."""

import pytest

from benchmarks.harness.largest_size import largest_size


@pytest.mark.parametrize("start", [1, 64, 250, 256, 1000])
@pytest.mark.parametrize("fitting", [4, 12, 100, 247, 248, 255, 600])
def test_the_largest_fits_and_the_next_is_refused(fitting, start):
    asked = []
    largest, refused = largest_size(lambda size: asked.append(size) or size <= fitting, start, 8)
    assert (largest, refused) == (fitting // 8 * 8, fitting // 8 * 8 + 8)
    assert {largest, refused} <= {0, *asked}
    # Twice the bits of the distance, in steps, from the start.
    assert len(asked) == len(set(asked)) <= 2 + 2 * (abs(fitting - start) // 8 + 1).bit_length()


def test_a_start_near_the_answer_takes_two_questions():
    asked = []
    assert largest_size(lambda size: asked.append(size) or size <= 260, 256, 8) == (256, 264)
    assert asked == [256, 264]
