import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.compare_libraries import measure
from benchmarks.harness.command_line import machine
from benchmarks.harness.process import Process, ProcessError
from benchmarks.imagenet_sized_run import rehearse
from benchmarks.libraries import Case
from benchmarks.startup import train
from keras_vit import costs
from keras_vit.variants import SIZES

ROOT = pathlib.Path(__file__).parents[2]
GUIDES = "\n".join(file.read_text() for file in sorted((ROOT / "docs").glob("*.md")))
COMMAND = r"python -m benchmarks (\w+[^\n`#|]*)"
LINES = [shlex.split(line) for line in re.findall(COMMAND, GUIDES.replace("\\\n", " "))]


def test_the_guides_name_every_command_and_their_options_exist():
    for name, *words in LINES:
        parser = BENCHMARKS.parser(name)
        assert parser.parse_args(words)
        assert parser.format_help().startswith(f"usage: python -m benchmarks {name}")
    assert {name for name, *_ in LINES} == {*BENCHMARKS.table}


def test_processes_that_fill_the_memory_have_a_parent_without_tensorflow(run_command):
    code = "import sys, benchmarks.figure_11_throughput; print({'tensorflow'} & {*sys.modules})"
    assert run_command(code, check=True).stdout == "set()\n"


@pytest.mark.rows(
    ("tabel", f"{', '.join(BENCHMARKS.table)}. Received: tabel"),
    ("compare_libraries --model ViT-Q/16", "Expected a model's name, one of ViT-Ti/16"),
    ("compare_libraries --libraries=tim", "argument --libraries: expected one of keras_vit"),
    ("compare_libraries --libraries=timm", "Expected --libraries to name keras_vit"),
    ("compare_libraries --libraries=keras_vit,keras_vit.taught", "Expected --mode=train for"),
    ("compare_pipelines", "the following arguments are required: --images"),
    ("compare_pipelines --images=benchmarks", "Expected JPEGs below benchmarks"),
    ("errors_in_runtimes --family=ViTs", "Expected --family of ViT, class token"),
    ("figure_11_throughput --models=ViT-Z/16", "Expected a model's name"),
    ("gpu --rows=train:ViT-Z/16:224:8", "Expected a model's name"),
    ("gpu --rows=train:ViT-B/16:224", "MODE:MODEL:PIXELS:IMAGES. Received: train:ViT-B/16:224"),
    ("figure_11_throughput --max_batch=0", "Expected --max_batch and --image_sizes"),
)
def test_bad_use_is_one_line(words, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


@pytest.mark.rows(pytest.param(50, marks=pytest.mark.slow), long=[1000])
@pytest.mark.timeout(3600)
def test_killed_resumed_and_evaluated(part, tmp_path):
    found = dict(rehearse(tmp_path, part, epochs=3, batch_size=32))
    assert found["images written"].startswith(f"{1_281_167 // part + 50_000 // part:,} in")
    epoch = 1_281_167 // part // 32
    assert found["first row of metrics"].endswith(f" s, {epoch // 10} steps")
    words = found["killed after step"].replace(",", "")
    step, steps = map(int, re.match(r"(\d+) of (\d+) in the third epoch", words).groups())
    assert 2 * epoch < step <= steps == 3 * epoch
    assert found["evaluated"].startswith(f"{50_000 // part:,} images, top-1 ")
    # Planted classes are learned: chance is a tenth at most.
    assert float(found["evaluated"].split("top-1 ")[1].split()[0]) > 20


@pytest.mark.long
def test_a_run_is_timed_until_its_first_step(tmp_path):
    facts, _ = train(str(tmp_path))
    assert 0 < facts["imported"] < facts["first_step"] < 300


@pytest.mark.long
def test_a_process_measures_until_it_takes_too_much():
    task = {"model": "ViT-Ti/16", "image_size": 32, "train": True}
    task |= {"precision": "float32", "jit_compile": False}
    # 2^17 images of 32 pixels are 1.5 GiB before any of them is looked at.
    options = {"threads": 1, "memory": 3 * 2**29}
    with Process("benchmarks.figure_11_throughput:rates", task, **options) as process:
        assert process.facts["device"] in ("CPU", "GPU")
        assert process.ask(batch_size=2)["images_per_second"] > 0
        with pytest.raises(ProcessError) as error:
            process.ask(batch_size=2**17)
    assert error.value.out_of_memory


def test_memory_is_that_of_the_process_alone():
    # This one holds TensorFlow, 400 MiB and more, when it starts the other.
    with Process("json:loads", {"s": "[{}, null]"}) as process:
        assert 2**22 < process.facts["memory"] < 2**27


@pytest.mark.parametrize(("text", "out_of_memory"), [("no disk", False), ("MemoryError", True)])
def test_a_process_that_fails_says_why(text, out_of_memory):
    with pytest.raises(ProcessError, match=text) as error:
        Process("builtins:exit", {"code": text})
    assert error.value.out_of_memory == out_of_memory


@pytest.mark.long
@pytest.mark.rows(("keras_vit", "infer"), ("keras_vit.taught", "train"))
def test_a_step_is_timed_once_per_round(library, mode):
    arguments = {**SIZES["Ti"], "patch_size": 16, "image_size": 32, "num_classes": 10}
    case = Case(library, {**arguments, "num_layers": 1}, mode, batch_size=2)
    (result,) = measure([case], rounds=2, seconds=0.0, threads=1)
    assert len(result.per_image) == 2 and min(result.per_image) > 0
    assert result.memory > 2**26
    # The teacher's do not train.
    assert result.parameters == costs("ViT-Ti/16", **case.arguments).parameters


def test_gpus_are_named(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H100\necho NVIDIA H100\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert " 2 of " in machine(2) and " cores, 2 × NVIDIA H100, load" in machine(2)
    program.write_text("#!/bin/sh\nexit 9\n")
    assert " cores, load average" in machine(2)


@pytest.mark.long
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="make test-jax installs it")
def test_without_tensorflow_jax_measures_this_package(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['tensorflow'] = None\n")
    options = f"--output={tmp_path}/gpu.json --rounds=1 --seconds=0 --matrix=64 --rows="
    options += "train:ViT-Ti/16:16:2:remat,infer:ViT-Ti/16:16:1"
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "benchmarks", "gpu", *options.split()]
    found = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr
    rows = [line.strip("| ").split(" | ") for line in found.stdout.splitlines() if "Ti" in line]
    rows = [row for row in rows if row[3] == "keras_vit"]
    assert [row[0] for row in rows] == ["train ViT-Ti/16 remat", "infer ViT-Ti/16"]
    # Cut off after the first row, the command measures the other alone.
    output = tmp_path / "gpu.json"
    kept = json.loads(output.read_text())
    kept["rows"].popitem()
    kept["rows"]["train:ViT-Ti/16:16:2:remat"]["keras_vit"]["times"] = [2.0]
    output.write_text(json.dumps(kept))
    again = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "| keras_vit | 1.0 | 2000.00 |" in again.stdout and "infer ViT-Ti/16" in again.stdout
    assert json.loads(output.read_text())["rows"].keys() == {*options.split("=")[-1].split(",")}
