"""The table of libraries, from results that need no library."""

import dataclasses

import pytest

from benchmarks import compare_libraries
from benchmarks.harness.library_steps import Result
from benchmarks.libraries import Case

MODEL = {"parameters": 7, "macs": 1e9, "executed_macs": 0.5e9}


def results(precision):
    def result(library, rounds, facts, compiled=False):
        case = Case(library, {}, batch_size=2, precision=precision, compiled=compiled)
        return Result(case, facts, rounds, 2**20)

    return [
        result("keras_vit", [0.2, 0.2, 0.2], MODEL),
        result("keras_vit.inference_function", [0.1, 0.1, 0.2], MODEL),
        result("timm", [0.2, 0.1, 0.1], {"parameters": 7}, compiled=True),
        result("keras_step.matrix_product", [1.0, 1.0, 1.0], {"flops": 1e11}),
        result("timm.matrix_product", [2.0, 2.0, 2.0], {"flops": 1e11}),
    ]


def test_ratios_are_medians_within_rounds_to_our_fastest_way():
    text = compare_libraries.report([*results("float32"), *results("bfloat16")])
    lines = [line.strip("| ").split(" | ") for line in text.splitlines()]
    # Three rounds: quartiles lie half way between the ratios 0.5, 1 and 2.
    timm = ["timm", "float32", "inductor", "50.00", "1.00", "0.75 to 1.50", "40 %", "1"]
    assert lines[4] == timm
    # Half the multiplications in the same time: half of the peak's share.
    assert lines[3][3:7] == ["50.00", "1.00", "1.00 to 1.00", "20 %"]
    assert lines[7][1] == "bfloat16"
    assert text.endswith("Peak of a bfloat16 matrix product: 100 GFLOP/s (median).")


def test_each_library_is_shown_at_its_best_batch():
    slower = [
        dataclasses.replace(r, case=dataclasses.replace(r.case, batch_size=1))
        for r in results("float32")
        if "flops" not in r.facts and r.case.library != "timm"
    ]
    faster = dataclasses.replace(
        results("float32")[2], case=Case("timm", {}, batch_size=4, compiled=True)
    )
    best = compare_libraries.at_best_batch([*slower, *results("float32"), faster])
    assert [(r.case.library, r.case.batch_size) for r in best] == [
        ("keras_vit", 2),
        ("keras_vit.inference_function", 2),
        ("keras_step.matrix_product", 2),
        ("timm.matrix_product", 2),
        ("timm", 4),
    ]
    timm = compare_libraries.report(best).splitlines()[4].strip("| ").split(" | ")
    assert timm[3:6] == ["25.00", "0.50", "0.38 to 0.75"]
    assert timm[-1] == "4"


def test_models_of_other_sizes_are_refused():
    unlike = results("float32")
    unlike[2].facts["parameters"] = 8
    with pytest.raises(ValueError, match="'timm': 8"):
        compare_libraries.report(unlike)
