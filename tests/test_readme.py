"""What the README and the guides to exporting say is run here, as it is written there."""

import pathlib
import re
import shlex

import pytest

import keras_vit
from keras_vit import export, training

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
QUICKSTART = ROOT / "examples" / "quickstart.py"
GUIDE_PAGES = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *GUIDE_PAGES, *sorted((ROOT / "docs/reference").glob("*.md"))]


def examples_of(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def run(run_installed):
    """Runs Python with what pip installs, in a folder with the user's own packages."""
    return lambda *arguments: run_installed(*arguments).stdout


@pytest.mark.long
def test_python_examples_run_one_after_the_other(run, tmp_path):
    output = run("-c", "\n".join(examples_of(README)))
    assert float(re.search(r"'accuracy': ([\d.]+)", output)[1]) > 0.7
    assert re.search(r"result +good", output), output
    assert "(2, 10) (2, 64)" in output
    assert (tmp_path / "digits.tflite").stat().st_size > 50_000


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
def test_commands_run(run, installed, tmp_path):
    block = re.search(r"## The commands\n\n```\n(.*?)```", README, re.DOTALL)[1]
    for program, *arguments in map(shlex.split, block.strip().splitlines()):
        run(installed / "bin" / program, *arguments)
    assert (tmp_path / "runs/digits/hub/saved_model.pb").exists()
    assert (tmp_path / "runs/digits/model.tflite").exists()


def test_every_guide_is_linked():
    guides = {page.name for page in GUIDE_PAGES} - {"index.md"}
    assert guides <= set(re.findall(r"\]\(docs/([^)#]+)\)", README))
    assert guides <= set(re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs/index.md").read_text()))
    assert guides <= set(re.findall(r"- (\S+\.md)", (ROOT / "mkdocs.yml").read_text()))


def test_everything_exported_is_in_the_reference():
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
    assert float(rows["Keras"]) > 50
    assert rows["TF-Hub"] == rows["Keras"]
    for name in ("report.html", "model.keras", "hub", "float32.tflite", "int8.tflite"):
        assert (tmp_path / "run" / name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quickstart_learns_the_digits(run, tmp_path, seed):
    output = run(QUICKSTART, "--workdir", tmp_path / "run", f"--config.seed={seed}")
    assert float(re.search(r"│ Keras +│ +([\d.]+) %", output)[1]) >= 97
