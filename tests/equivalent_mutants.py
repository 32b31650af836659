"""Mutants that no test can notice, for `tests/mutants.py`: {(file, line): why}."""

EQUIVALENT = {
    ("benchmarks/input.py", "for _ in range(WARM_UP_BATCHES):"): "what warms up changes times only",
}
