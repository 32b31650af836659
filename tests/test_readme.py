"""What the README and the guides to exporting say is run here, as it is written there."""

import pathlib
import re
import shlex

import pytest

import keras_vit
from keras_vit import export, training

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
GUIDES = ("tf_hub.md", "tflite.md")
GUIDE_PAGES = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *GUIDE_PAGES, *sorted((ROOT / "docs/reference").glob("*.md"))]


@pytest.fixture
def run(run_installed):
    """Runs Python with what pip installs, in a folder with the user's own packages."""
    return lambda *arguments: run_installed(*arguments).stdout


@pytest.mark.long
def test_python_examples_run_one_after_the_other(run, tmp_path):
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    output = run("-c", "\n".join(examples))
    accuracy = float(re.search(r"'accuracy': ([\d.]+)", output)[1])
    assert accuracy > 0.7
    assert re.search(r"result +good", output), output
    assert "(2, 10) (2, 64)" in output
    assert (tmp_path / "digits.tflite").stat().st_size > 50_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_that_load_a_model_know_its_classes(page):
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        before, loads, _ = example.partition("load_model(")
        assert not loads or re.search(r"^(import|from) keras_vit\b", before, re.MULTILINE), example


@pytest.mark.long
@pytest.mark.parametrize("guide", GUIDES)
def test_examples_of_guides(guide, run):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / guide).read_text(), re.DOTALL)
    run("-c", "\n".join(examples))


@pytest.mark.long
def test_commands_run(run, installed, tmp_path):
    block = re.search(r"## The commands\n\n```\n(.*?)```", README, re.DOTALL)[1]
    lines = block.strip().splitlines()
    for line in lines:
        program, *arguments = shlex.split(line)
        run(installed / "bin" / program, *arguments)
    assert (tmp_path / "runs/digits/hub/saved_model.pb").exists()
    assert (tmp_path / "runs/digits/model.tflite").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_files_that_are_named_exist(page):
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert not [link for link in links if not (page.parent / link).exists()]
    folders = "keras_vit|training|export|benchmarks|tests"
    named = re.findall(rf"`((?:{folders})/[\w/.]*)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_guide_is_linked():
    guides = {page.name for page in GUIDE_PAGES} - {"index.md"}
    index = (ROOT / "docs" / "index.md").read_text()
    configuration = (ROOT / "mkdocs.yml").read_text()
    assert guides <= set(re.findall(r"\]\(docs/([^)#]+)\)", README))
    assert guides <= set(re.findall(r"\]\(([^)#]+)\)", index))
    assert guides <= set(re.findall(r"- (\S+\.md)", configuration))


def test_everything_exported_is_in_the_reference():
    reference = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    documented = re.findall(r"^::: ([\w.]+)", reference, re.MULTILINE)
    words = {word for name in documented for word in name.split(".")}
    for package in (keras_vit, training, export):
        missing = set(package.__all__) - words - {"__version__"}
        assert not missing, f"docs/reference has no line ::: for {missing} of {package.__name__}"


@pytest.mark.long
def test_quickstart_exports_what_it_trains(run, tmp_path):
    workdir = tmp_path / "run"
    script = ROOT / "examples" / "quickstart.py"
    overrides = ["--config.total_steps=150", "--config.optimizer.warmup_steps=20"]
    output = run(script, "--workdir", workdir, *overrides)
    rows = dict(re.findall(r"│ (Keras|TFLite|TF-Hub)\b.*?│ +([\d.]+) %", output))
    assert float(rows["Keras"]) > 50
    assert rows["TF-Hub"] == rows["Keras"]
    for name in ("report.html", "model.keras", "hub", "float32.tflite", "int8.tflite"):
        assert (workdir / name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quickstart_learns_the_digits(run, tmp_path, seed):
    script = ROOT / "examples" / "quickstart.py"
    output = run(script, "--workdir", tmp_path / "run", f"--config.seed={seed}")
    assert float(re.search(r"│ Keras +│ +([\d.]+) %", output)[1]) >= 97
