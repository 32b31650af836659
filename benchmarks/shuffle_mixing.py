"""`python -m benchmarks shuffle_mixing`: how well the orders of an epoch mix it.

The examples are taken as stored class by class, the worst case for reading neighbors together. For
each order, of one epoch:

- classes of a batch: how many there are, as a part of those of a batch drawn at random;
- same class next: how often an example is followed by one of its class, in a batch of the host;
- distance: between an example and the next in storage, as a part of the set; 1/3 is random.
"""

import argparse
from collections.abc import Sequence

import numpy as np

from benchmarks.harness import options
from training.reporting.table import Table


def main(argv: Sequence[str]) -> int:
    """Prints the table; returns the exit code."""
    parser = options.parser("shuffle_mixing", __doc__, batch_size=4096)
    parser.add_argument("--examples", type=int, default=1_281_167)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 8, 64])
    chosen = parser.parse_args(argv)
    rows = [
        [shuffle, hosts, *(f"{value:.4f}" for value in mixing(shuffle, hosts, chosen))]
        for shuffle in ("full", "blocks")
        for hosts in chosen.hosts
    ]
    columns = ["order", "hosts", "classes of a batch", "same class next", "distance"]
    print(Table(columns, rows).markdown())
    print(
        f"\n{chosen.examples} examples in {chosen.classes} classes, stored class by class; batches "
        f"of {chosen.batch_size}"
    )
    return 0


def mixing(shuffle: str, hosts: int, chosen: argparse.Namespace) -> tuple[float, float, float]:
    """Returns the three numbers of an order, of its first epoch."""
    from training.data.example_order import order_in_pieces

    n, batch_size = chosen.examples, chosen.batch_size
    pieces = order_in_pieces(n, 0, 0, batch_size, range(batch_size), shuffle, hosts)
    found = []
    for _, indices in pieces.as_numpy_iterator():
        found.append(indices)
        if sum(map(len, found)) >= n:
            break
    order = np.concatenate(found)[: n // batch_size * batch_size]
    classes = order * chosen.classes // n
    batches = classes.reshape(-1, batch_size)
    present = np.mean([len(np.unique(batch)) for batch in batches])
    at_random = chosen.classes * (1 - (1 - 1 / chosen.classes) ** batch_size)
    shares = classes.reshape(-1, batch_size // hosts)
    same = np.mean(shares[:, 1:] == shares[:, :-1])
    distance = np.mean(np.abs(np.diff(order))) / n
    return float(present / at_random), float(same), float(distance)
