"""The table of libraries, from results that need no library."""

import pytest

from benchmarks.compare_libraries import Result, at_best_batch, report
from benchmarks.libraries import Case


def result(library, per_image, precision="float32", batch_size=2, parameters=7):
    compiled = library == "timm"
    case = Case(library, {}, "infer", batch_size, precision, compiled)
    return Result(case, parameters, per_image, 2**20)


def results(precision):
    return [
        result("keras_vit", [0.1, 0.1, 0.1], precision),
        result("keras_vit.remat", [0.05, 0.05, 0.1], precision),
        result("timm", [0.1, 0.05, 0.05], precision),
    ]


def test_ratios_are_medians_within_rounds_to_our_fastest_way(cells):
    rows = cells(report([*results("float32"), *results("bfloat16")]))[2:]
    # Three rounds: quartiles lie half way between the ratios 0.5, 1 and 2.
    assert rows[2] == ["timm", "float32", "inductor", "50.00", "1.00", "0.75 to 1.50", "1"]
    assert rows[1][2:6] == ["no", "50.00", "1.00", "1.00 to 1.00"]
    assert [row[1] for row in rows] == ["float32"] * 3 + ["bfloat16"] * 3


def test_each_library_is_shown_at_its_best_batch(cells):
    slower = [result(name, [0.3] * 3, batch_size=1) for name in ("keras_vit", "keras_vit.remat")]
    faster = result("timm", [0.05, 0.025, 0.025], batch_size=4)
    best = at_best_batch([*slower, *results("float32"), faster])
    rows = cells(report(best))[2:]
    assert [[row[0], row[3]] for row in rows] == [
        ["keras_vit", "2"],
        ["keras_vit.remat", "2"],
        ["timm", "4"],
    ]
    assert rows[2][4:7] == ["25.00", "0.50", "0.38 to 0.75"]


def test_models_of_other_sizes_are_refused():
    unlike = [*results("float32")[:2], result("timm", [0.1], parameters=8)]
    with pytest.raises(ValueError, match="'timm': 8"):
        report(unlike)
