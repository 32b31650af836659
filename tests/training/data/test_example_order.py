import numpy as np
import pytest
from training.data.example_order import ORDERS, example_order

FIRST = {
    "blocks": [15, 45, 41, 14, 21, 30, 4, 12, 25, 18],
    "full": [16, 47, 3, 35, 40, 13, 19, 28, 29, 22],
    "sorted": [4, 48, 31, 23, 5, 26, 17, 43, 0, 2],
}

pytestmark = pytest.mark.parametrize("shuffle", sorted(ORDERS))


def indices(dataset, count):
    return [int(index) for _, index in dataset.take(count)]


def epoch_order(epoch, shuffle, seed=3):
    return indices(example_order(50, seed, 50 * epoch, 50, range(50), shuffle), 50)


def test_an_epoch_is_a_permutation_of_its_seed_and_number(shuffle):
    orders = [epoch_order(0, shuffle), epoch_order(1, shuffle), epoch_order(0, shuffle, seed=4)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(50))
    assert len({tuple(order) for order in orders}) == 3
    assert epoch_order(1, shuffle) == orders[1]


def test_positions_run_through_the_epochs_from_any_start_and_in_any_share(shuffle):
    run = np.concatenate([epoch_order(epoch, shuffle) for epoch in range(4)])
    every = example_order(50, 3, 70, 8, range(8), shuffle).take(90)
    assert [(int(g), int(index)) for g, index in every] == [(g, run[g]) for g in range(70, 160)]
    share = example_order(50, 3, 72, 8, [2, 3], shuffle).take(20)
    expected = [(g, run[g]) for g in range(72, 200) if g % 8 in (2, 3)][:20]
    assert [(int(g), int(index)) for g, index in share] == expected


def test_runs_longer_than_a_chunk_go_on(shuffle):
    # 10,000 positions are several chunks; 7 divides neither them nor the epochs.
    whole = indices(example_order(1000, 0, 0, 7, range(7), shuffle), 10_000)
    for epoch in range(10):
        assert len(set(whole[1000 * epoch : 1000 * (epoch + 1)])) == 1000
    assert indices(example_order(1000, 0, 9100, 7, range(7), shuffle), 900) == whole[9100:]


def test_seeds_are_any_integers(shuffle):
    for seed in (-1, 2**31, 2**62):
        order = indices(example_order(20, seed, 0, 20, range(20), shuffle), 20)
        assert sorted(order) == list(range(20))


def test_orders_stay_what_they_are(shuffle):
    # Every run that resumes depends on them.
    assert epoch_order(1, shuffle)[:10] == FIRST[shuffle]
