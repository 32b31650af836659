"""The tutorial does what it says: its commands one after the other, its Python, its notebook."""

import json
import pathlib
import re
import shlex

import numpy as np
import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
SHORT = ["--config.total_steps=6", "--config.optimizer.warmup_steps=2", "--config.batch_size=8"]


@pytest.mark.long
def test_commands_one_after_the_other(tmp_path, installed, run_installed):
    # Photos of two classes, one of them taken sideways.
    rng = np.random.default_rng(0)
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
    assert len(here) == len(lines) - 1 == 9
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
