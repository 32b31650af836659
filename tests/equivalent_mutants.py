"""Mutants that no test can notice, for `tests/mutants.py`: {(file, line): why}."""

EQUIVALENT: dict[tuple[str, str], str] = {}
