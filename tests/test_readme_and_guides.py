import json
import pathlib
import re
import shlex

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import export, training
from keras_vit.__main__ import KERAS_VIT, main
from keras_vit.training.commands import budget
from keras_vit.training.config import overrides, schema

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
QUICKSTART = ROOT / "examples" / "quickstart.py"
GUIDE_PAGES = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *GUIDE_PAGES, *sorted((ROOT / "docs/reference").glob("*.md"))]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
SHORT = ["--config.total_steps=6", "--config.optimizer.warmup_steps=2", "--config.batch_size=8"]
GUIDES = [(ROOT / "docs" / name).read_text() for name in ("reproduce.md", "transfer.md")]


def examples_of(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def run(run_installed):
    return lambda *arguments: run_installed(*arguments).stdout


@pytest.mark.long
def test_python_examples_run_one_after_the_other(run, tmp_path):
    output = run("-c", "\n".join(examples_of(README)))
    assert float(re.search(r"'accuracy': ([\d.]+)", output)[1]) > 0.7
    assert re.search(r"result +good", output), output
    assert "(2, 10) (2, 64)" in output and (tmp_path / "digits.tflite").stat().st_size > 50_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_know_the_classes_of_models_and_what_is_named_exists(page):
    text = page.read_text()
    for example in examples_of(text):
        before, loads, _ = example.partition("load_model(")
        assert not loads or re.search(r"^(import|from) keras_vit\b", before, re.MULTILINE), example
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert not [link for link in links if not (page.parent / link).exists()]
    named = re.findall(r"`((?:keras_vit|training|export|benchmarks|tests)/[\w/.]*)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.long
@pytest.mark.parametrize("guide", ["tf_hub.md", "tflite.md"])
def test_examples_of_guides(guide, run):
    run("-c", "\n".join(examples_of((ROOT / "docs" / guide).read_text())))


@pytest.mark.long
def test_research_without_editing(run_installed, installed, tmp_path):
    text = (ROOT / "docs" / "extend.md").read_text()
    for example in examples_of(text):
        (tmp_path / re.match(r"# (\w+\.py)\n", example)[1]).write_text(example)
    blocks = re.findall(r"^```\n((?:keras-vit|python) .*?)```", text, re.DOTALL | re.MULTILINE)
    train, deeper, own, seeds, compare = (
        shlex.split(line) for block in blocks for line in block.splitlines()
    )
    for _, *words in (train, deeper):
        run_installed(installed / "bin/keras-vit", *words, "--config.total_steps=120")
    config = json.loads((tmp_path / "runs/deeper/config.json").read_text())
    assert config["model"]["num_layers"] == 3 and config["optimizer"]["name"] == "adamw"
    printed = run_installed(*own[1:]).stdout
    assert float(re.search(r"finished .*'eval_top1': ([\d.]+)", printed)[1]) > 0.7
    rows = [line.split(",") for line in (tmp_path / "runs/own/metrics.csv").read_text().split()]
    norms = {row[0]: row[rows[0].index("weight_norm")] for row in rows[1:]}
    assert not norms["50"] and float(norms["100"]) > 1
    # The logger saw every row; a second call finds the run finished, with its own optimizer.
    assert re.findall(r"^(\d+) \{'loss'", printed, re.MULTILINE) == ["50", "100", "150", "200"]
    assert run_installed(*own[1:]).stdout.startswith("finished {'step': 200")
    shown = run_installed(
        installed / "bin/keras-vit", *seeds[1:], "--config.total_steps=40", "--config.report=false"
    ).stdout
    *scores, (mean, deviation) = re.findall(r"│ +([\d.]+)(?: ± ([\d.]+))? │", shown)
    scores = [float(score) for score, _ in scores]
    assert len(scores) == 3 and float(mean) == pytest.approx(np.mean(scores), abs=0.006)
    assert float(deviation) == pytest.approx(np.std(scores, ddof=1), abs=0.01)
    shown = run_installed(installed / "bin/keras-vit", *compare[1:]).stdout
    assert re.search(r"│ optimizer\.name +│ keras\.Lion +│ adamw +│ keras\.Lion", shown)
    assert re.search(r"│ losses +│ – +│ – +│ focal", shown)
    assert (
        "C2" not in (page := (tmp_path / "comparison.html").read_text())
        and page.count("<svg") == 5  # weight_norm, too
    )


@pytest.mark.long
def test_commands_run(run, installed, tmp_path):
    block = re.search(r"## The commands\n\n```\n(.*?)```", README, re.DOTALL)[1]
    for program, *arguments in map(shlex.split, block.strip().splitlines()):
        run(installed / "bin" / program, *arguments)
    assert (tmp_path / "runs/digits/hub/saved_model.pb").exists()
    assert (tmp_path / "runs/digits/model.tflite").exists()


def test_guides_are_linked_ports_named_and_exports_in_the_reference():
    guides = {page.name for page in GUIDE_PAGES} - {"index.md"}
    assert guides <= set(re.findall(r"\]\(docs/([^)#]+)\)", README))
    assert guides <= set(re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs/index.md").read_text()))
    assert guides <= set(re.findall(r"- (\S+\.md)", (ROOT / "mkdocs.yml").read_text()))
    files = [file for name in ("training", "export") for file in (ROOT / name).rglob("*.py")]
    opens = re.compile("create_server|HTTPServer")
    opening = {file.name for file in files if opens.search(file.read_text())}
    assert opening == {"jax_processes.py", "browser.py"}
    ports = (ROOT / "SECURITY.md").read_text().partition("| Port |")[2]
    for name in ("export verify", "processes.coordinator", "JAX process", "TF_CONFIG", "--cluster"):
        assert name in ports
    reference = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    documented = re.findall(r"^::: ([\w.]+)", reference, re.MULTILINE)
    words = {word for name in documented for word in name.split(".")}
    for package in (keras_vit, training, export):
        missing = set(package.__all__) - words - {"__version__"}
        assert not missing, f"docs/reference has no line ::: for {missing} of {package.__name__}"


@pytest.mark.long
def test_quickstart_exports_what_it_trains(run, tmp_path):
    overrides = ["--config.total_steps=150", "--config.optimizer.warmup_steps=20"]
    output = run(QUICKSTART, "--workdir", tmp_path / "run", *overrides)
    rows = dict(re.findall(r"│ (Keras|TFLite|TF-Hub)\b.*?│ +([\d.]+) %", output))
    assert float(rows["Keras"]) > 50 and rows["TF-Hub"] == rows["Keras"]
    for name in ("report.html", "model.keras", "hub", "float32.tflite", "int8.tflite"):
        assert (tmp_path / "run" / name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quickstart_learns_the_digits(run, tmp_path, seed):
    output = run(QUICKSTART, "--workdir", tmp_path / "run", f"--config.seed={seed}")
    assert float(re.search(r"│ Keras +│ +([\d.]+) %", output)[1]) >= 97


@pytest.mark.long
def test_commands_one_after_the_other(tmp_path, installed, run_installed):
    rng = np.random.default_rng(0)  # Photos of two classes, one of them taken sideways.
    for label, name in enumerate(("crow", "finch")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(15):
            pixels = rng.integers(0, 60, (30, 40, 3)) + 150 * label
            exif = Image.Exif()
            exif[0x0112] = 1 + 5 * (number == 0)
            image = Image.fromarray(pixels.astype(np.uint8))
            image.save(tmp_path / "photos" / name / f"{number}.jpg", exif=exif)
    image.save(tmp_path / "new_photo.jpg")
    blocks = re.findall(r"```\n(keras-vit .*?)```", TUTORIAL, re.DOTALL)
    lines = [line for block in blocks for line in block.strip().splitlines()]
    here = [line for line in lines if "model=augreg/Ti_16" not in line]  # it downloads
    assert len(here) == len(lines) - 1 == 10
    texts = []
    for name, command, *arguments in map(shlex.split, here):
        arguments += SHORT if command == "train" else []
        result = run_installed(installed / "bin" / name, command, *arguments)
        texts.append(result.stdout + result.stderr)
        assert not re.findall(r"^(?:WARNING|INFO|[IWE]0000|To enable) .*", texts[-1], re.MULTILINE)
    assert "30 images decoded: all well" in texts[0]
    assert "new_photo.jpg" in texts[2] and {"crow", "finch"} <= set(texts[2].split())
    assert texts[3].startswith("file,rank,class,probability\n") and texts[3].count("\n") == 31
    assert (tmp_path / "runs/predictions.html").read_text().count("attention of") == 30
    assert "result" in texts[5] and "good" in texts[5]
    page = (tmp_path / "runs/photos/report.html").read_text()
    assert 'href="phone.tflite"' in page and 'href="module/"' in page
    # The Python below it, on the run that the commands left.
    (example,) = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
    printed = run_installed("-c", example).stdout
    one, other = (float(re.search(r"finch\W+([\d.]+)", text)[1]) for text in (texts[2], printed))
    assert one == pytest.approx(other, abs=2e-4)


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(run_installed):
    notebook = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells += ["print('accuracy', metrics['eval_top1'], 'ok', report.ok)"]
    printed = run_installed("-c", "\n\n".join(cells)).stdout
    assert float(re.search(r"accuracy ([\d.]+) ok True", printed)[1]) > 0.9


def found(pattern):
    return sorted({match for text in GUIDES for match in re.findall(pattern, text, re.MULTILINE)})


@pytest.mark.parametrize("name", found(r"(?:`|^)keras-vit (\w+)"))
def test_commands_exist(name):
    assert name in {*KERAS_VIT.table, *KERAS_VIT.groups}


@pytest.mark.parametrize("config", found(r"--config=([^\s`]+)[\s`]"))
def test_configs_are_complete(config):
    path, _, argument = config.partition(":")
    # A run directory of the reader's stands for the name of a model.
    argument = re.sub(r"(^|model=)(RUN|runs/[\w-]+)", r"\1ViT-B/16", argument)
    loaded = schema.complete(overrides.load_config(f"{path}:{argument}" if argument else path))
    assert loaded.dataset and (loaded.total_steps > 0 or loaded.epochs > 0)


def test_hours_are_six_operations_per_multiply_accumulate(capsys):
    cells = {row[0]: row[1:] for row in budget.experiment_table(["ViT-B/16"], teraflops=10).rows}
    macs = keras_vit.costs("ViT-B/16", image_size=384).macs
    exaflops = 6 * macs * 7 * 10_000 * 512 / 1e18
    assert cells["sweep CIFAR-10"] == (7, f"{exaflops:.1f} ({exaflops * 1e18 / 1e13 / 3600:.0f} h)")
    # The paper's second version prints 224.
    assert cells["pre-train on JFT-300M"] == (1, "224 (6,210 h)")
    assert cells["fine-tune on VTAB"][0] == 57
    # Table 3 does not pre-train it.
    assert budget.experiment_table(["ViT-Ti/16"], teraflops=10).rows[0][2] == "–"
    assert main(["budget"]) == 0  # The document shows what the command prints.
    assert capsys.readouterr().out in GUIDES[0]
