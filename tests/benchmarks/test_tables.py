from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import compare_pipelines, errors_in_runtimes, figure_11_throughput, gpu, tpu_compile
from benchmarks.__main__ import main
from benchmarks.compare_libraries import Result, rows_of
from benchmarks.figure_11_throughput import Measurement, search
from benchmarks.harness.process import ProcessError
from benchmarks.libraries import Case
from keras_vit.export.errors import RuntimeMissing
from keras_vit.export.verification.verify import verify

MAKERS = compare_pipelines.pipelines()
PIPELINES = [(kind, name) for kind, makers in MAKERS.items() for name in makers]
# What the TPU's compiler answers.
PROGRAM = {"seconds": 61.0, "flops": 1e12, "bytes": 2e9, "arguments": 1e9, "temporaries": 3e9}
PROGRAM |= {"collectives": {"all-reduce": 4}, "rematerialized": 3}
TEMPORARIES = "memory required for HLO temporaries (578.84G) exceeds available HBM (15.75G). HLO"


@pytest.fixture
def cells(capsys):
    def read(text=""):
        lines = (text or capsys.readouterr().out).splitlines()
        rows = [line.split("|")[1:-1] for line in lines if line.startswith("| ")]
        return [[cell.strip() for cell in row] for row in rows]

    return read


def result(library, per_image, precision="float32", parameters=7):
    case = Case(library, {}, "infer", 2, precision, compiled=library == "timm")
    return Result(case, parameters, per_image, 2**20)


def results(precision):
    times = {"": [0.1, 0.1, 0.1], ".remat": [0.05, 0.05, 0.1]}
    ours = [result(f"keras_vit{way}", each, precision) for way, each in times.items()]
    return [*ours, result("timm", [0.1, 0.05, 0.05], precision)]


def test_ratios_are_medians_within_rounds_to_our_fastest_way():
    rows = [[*row.values()] for row in rows_of([*results("float32"), *results("bfloat16")])]
    # Three rounds: quartiles lie half way between the ratios 0.5, 1 and 2.
    assert rows[2] == ["timm", "float32", "inductor", "50.00", "1.00", "0.75 to 1.50", "1"]
    assert rows[1][2:6] == ["no", "50.00", "1.00", "1.00 to 1.00"]
    assert [row[1] for row in rows] == ["float32"] * 3 + ["bfloat16"] * 3
    with pytest.raises(ValueError, match="'timm': 8"):
        rows_of([*results("float32")[:2], result("timm", [0.1], parameters=8)])
    seconds = dict.fromkeys(PIPELINES, [1.0] * 3) | {("training", "ours"): [2.0, 4.0, 1.6]}
    rows = {row["pipeline"]: [*row.values()] for row in compare_pipelines.rates(seconds)}
    assert rows["training: ours"][1:] == ["0", "0.50", "0.50", "0.38 to 0.56"]


def of_gpu(batch, times, device=2**30, parameters=7):
    own = {"parameters": parameters, "seconds": 12.4, "device": device, "memory": 2**31}
    return {**own, "batch": batch, "times": times}


def test_speed_on_a_gpu_is_compared_with_the_best_rival_within_rounds_and_at_its_best_batch():
    small = {"keras_vit": of_gpu(10, [1.0, 2.0, 2.0]), "jax": of_gpu(10, [4.0, 4.0, 4.0])}
    small["timm"] = of_gpu(10, [2.0, 2.0, 1.0], device=0)
    large = {"keras_vit": of_gpu(20, [5.0, 5.0, 5.0]), "timm": of_gpu(20, [2.0, 2.0, 2.0])}
    found = {"train:ViT-B/16:224:10": small, "train:ViT-B/16:224:20": large}
    found["infer:ViT-B/16:224:1"] = {"keras_vit": of_gpu(1, [0.5, 0.25, 0.5])}
    rows = gpu.rows_of(gpu.at_best_batch(found), peak=1e13)
    # Equation: 17.58 G multiply-accumulates, two operations each, three passes, five images/s.
    assert [*rows[0].values()][2:8] == ["10", "keras_vit", "5.0", "2000.00", "1.00", "5"]
    assert [*rows[0].values()][8:] == ["12", "1.00", "0.75 to 1.50"]
    assert rows[2]["GiB"] == "2.00" and rows[2]["speed ÷ best rival"] == "1.00"
    assert [*rows[5].values()][4:] == ["2.0", "500.00", "1.00", "1", "12"]
    best = {row["library"]: row["batch"] for row in rows[6:]}
    assert best == {"keras_vit": "best, 10", "jax": "best, 10", "timm": "best, 20"}
    assert (rows[6]["speed ÷ best rival"], rows[6][""]) == ("0.50", "train ViT-B/16")
    small["timm"]["parameters"] = 8
    with pytest.raises(ValueError, match="'timm': 8"):
        gpu.rows_of(found, 1e13)


@pytest.mark.long
def test_every_pipeline_is_compared(tmp_path, cells, capsys):
    rng = np.random.default_rng(0)
    for number in range(4):
        image = rng.integers(0, 256, (60, 80, 3)).astype(np.uint8)
        (tmp_path / f"{number}.JPEG").write_bytes(tf.io.encode_jpeg(image).numpy())
    words = ["--batch_size=4", "--batches=2", "--rounds=1"]
    assert main(["compare_pipelines", f"--images={tmp_path}", *words]) == 0
    printed = capsys.readouterr().out
    assert "4 images, batches of 4, 224 pixels, 1 rounds" in printed
    _, _, *rows = cells(printed)
    rates, changes = rows[: len(PIPELINES)], rows[len(PIPELINES) + 2 :]
    # These images are smaller than the target, so that there is nothing to reduce.
    assert [row[1:] for row in changes] == [["0.00"] * 2] * 2
    assert [row[0] for row in rates] == [": ".join(name) for name in PIPELINES]
    assert all(float(row[1]) > 0 for row in rates)
    # A row is compared with itself in its own column.
    assert all(float(row[2]) == 1.0 for row in rates if row[0].endswith(compare_pipelines.FLOOR))


@pytest.mark.long
def test_cells_of_runtimes_are_errors_and_what_is_wrong_is_told(monkeypatch, capsys, cells):
    command = ["errors_in_runtimes", "--family=ViT*"]
    float32 = (["--runtime=interpreter,compiled"], 0, 1e-5, 2)
    float16 = (["--runtime=interpreter", "--weights=float16"], 1e-5, 1e-2, 1)
    for options, least, most, count in (float32, float16):
        assert main([*command, *options]) == 0
        ((family, *errors),) = cells()[2:]
        assert family == "ViT, class token" and len(errors) == count
        assert all(least < float(error) < most for error in errors)

    def wrong(model, file, images, runtime, **kwargs):
        if runtime == "gpu":
            raise RuntimeMissing("Expected a Vulkan driver.")
        head = model.get_layer("head")
        head.bias.assign(head.bias + 1)
        return verify(model, file, images, runtime=runtime, **kwargs)

    monkeypatch.setattr(errors_in_runtimes, "verify", wrong)
    assert main([*command, "--runtime=interpreter,gpu"]) == 1
    output = capsys.readouterr().out
    ((_, cell),) = cells(output)[2:]
    assert cell.startswith("**wrong**")
    assert "gpu is not here: Expected a Vulkan driver." in output


def device(capacity, rate=float):
    def ask(batch_size):
        if batch_size > capacity:
            raise ProcessError("killed", out_of_memory=True)
        return {"images_per_second": rate(batch_size)}

    return ask


@pytest.mark.rows((1000, 8, 16, False), (12, 8, 8, True), (0, 0, 0, True))
def test_best_batch_need_not_be_the_largest(capacity, best, largest, limited):
    found = search(device(capacity, lambda batch: 100 - (batch - 8) ** 2), max_batch=16)
    assert found == (100 if best else 0, best, largest, limited)
    with pytest.raises(ProcessError, match="no disk"):  # is no limit
        search(mock.Mock(side_effect=ProcessError("no disk", out_of_memory=False)), 2)


def test_throughputs_are_printed_and_drawn_with_a_line_for_each_model(
    tmp_path, monkeypatch, capsys, cells
):
    def fake(function, task, *, memory):
        process = mock.MagicMock(facts={"device": "CPU"}, ask=device(task["image_size"] // 16))
        process.__enter__.return_value = process
        return process

    monkeypatch.setattr(figure_11_throughput, "Process", fake)
    file = tmp_path / "figure.png"
    words = ["--models=ViT-B/16,BiT-R50x1", "--image_sizes=32,64", "--max_batch=4"]
    words += ["--precision=bfloat16", f"--output={file}"]
    assert main(["figure_11_throughput", *words]) == 0
    printed = capsys.readouterr().out
    assert "Inference in bfloat16 on CPU, 4 GiB" in printed
    rows = [["32", "2", "2", "2"], ["64", "4", "4", "≥ 4"]]
    expected = [[name, *row] for name in ("ViT-B/16", "BiT-R50x1") for row in rows]
    assert cells(printed)[2:] == expected and file.read_bytes().startswith(b"\x89PNG")
    shown = [(224, 50.0, 8, 64, True), (384, 10.0, 4, 16, False)]
    measured = [Measurement("ViT-B/16", *each) for each in shown]
    measured.append(Measurement("ViT-H/14", 384, 0.0, 0, 0, True))
    rates, batches = figure_11_throughput.draw(measured, "title").axes
    assert rates.lines[0].get_xydata().tolist() == [[224, 50], [384, 10]]
    assert batches.lines[0].get_xydata().tolist() == [[224, 64], [384, 16]]


def test_every_row_of_table_6_is_printed_with_our_count(cells):
    assert main(["table_6_exaflops"]) == 0
    rows = {(row[0], row[1]): row[2:] for row in cells()[2:]}
    assert len(rows) == 18
    assert rows["ViT-B/16", "7"] == ["85.8M", "17.56", "16.35", "223.5", "224", "-0.22%", ""]
    assert "half of the same model's 1668" in rows["R50+ViT-L/16", "7"][-1]
    assert sum(row[-1] != "" for row in rows.values()) == 1


def test_a_compiled_program_and_why_there_is_none(monkeypatch, cells):
    answers = {"v5e:4x4": PROGRAM, "v5e:16x16": {"seconds": 5.0, "error": "out of memory"}}
    compiler = mock.Mock(side_effect=lambda program, topology, **task: answers[topology])
    monkeypatch.setattr(tpu_compile, "run_compiler", compiler)
    words = ["tpu_compile", "--engine=jax", "--topology=v5e:4x4,v5e:16x16", "--fsdp=8"]
    assert main([*words, "--batch_size=64", "--accumulation_steps=4"]) == 0
    whole, none = cells()[2:]
    row = "keras_vit | data=2,fsdp=8 | 4 × 16 | 61 s | 1.00 | 2.0 GB | 1.00 GB | 3.00 GB"
    assert whole[2:] == [*row.split(" | "), "4 all-reduce, 3 rematerialized"]
    assert none[3:7] == ["data=32,fsdp=8", "4 × 16", "5 s", "out of memory"]
    task = compiler.call_args_list[0].kwargs
    assert task["mesh"] == [-1, 8] and task["dropout_rate"] > 0
    # The original has no dropout, and neither has ours beside it.
    assert main(["tpu_compile", "--against=vit_jax", "--topology=v5e:4x4"]) == 0
    assert [row[2] for row in cells()[2:]] == ["keras_vit", "vit_jax"]
    assert compiler.call_args_list[2].kwargs["dropout_rate"] == 0.0


@pytest.mark.rows(
    ("Used 17.20G of 15.75G hbm. Exceeded", "out of memory: used 17.20G of 15.75G"),
    (TEMPORARIES, "out of memory: used 578.84G of 15.75G"),
    ("INTERNAL: no such chip\nand more", "INTERNAL: no such chip"),
)
def test_the_compilers_reason(message, expected):
    assert tpu_compile.reason(RuntimeError(message)) == expected


# As the TPU compiler writes them.
TEXT = """\
%all-reduce-scatter.1 (p: f32[8]) -> f32[2] {
  %a = f32[8] all-reduce(%p), channel_id=1, to_apply=%add
}
ENTRY %main (p: f32[8]) -> f32[8] {
  %b = f32[8] all-reduce-start(%p), channel_id=2, to_apply=%add
  %c = f32[8] all-reduce-start(%p), channel_id=2, to_apply=%add
  %d = f32[8] all-reduce(%p), channel_id=3, to_apply=%add
  %e = f32[8] all-reduce-done(%b)
}
"""


def test_a_collective_counts_once_under_its_channel():
    assert tpu_compile.collectives(TEXT) == {"all-reduce": 2, "reduce-scatter": 1}
