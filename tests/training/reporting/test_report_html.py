import html.parser
import os
import shutil
import subprocess

import numpy as np
import pytest

from training.io.atomic import write_text
from training.reporting.read_metrics import read_metrics
from training.reporting.report_html import Example, report_html

VOID = {"meta", "img", "br", "link", "hr"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(html.parser.HTMLParser):
    """Collects what a page holds, and insists that every tag is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.ids = [], [], [], set()
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.ids.add(attributes.get("id"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def report(tmp_path):
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("step,loss,eval_loss,eval_top1\n10,2.5,,\n20,1.25,1.5,0.75\n")
    image = np.zeros((8, 8, 3))
    image[:, 4:] = 200
    path = tmp_path / "report.html"
    page = report_html(
        title="cats & <dogs>",
        subtitle="two classes",
        series=read_metrics(metrics),
        tiles={"top-1 accuracy": "75.00 %"},
        config='{"seed": 0}',
        confusion=np.array([[3, 1], [0, 4]]),
        names=["cat", "<dog>"],
        examples=[Example(image, 0, 1, np.eye(2)), Example(image, 1, 1)],
    )
    write_text(path, page)
    return path


def test_is_one_well_formed_page_with_everything_in_it(report):
    page = Page(report.read_text())
    text = "".join(page.text)
    assert {"curves", "confusion", "examples", "config"} <= page.ids
    assert "cats & <dogs>" in text and "75.00 %" in text
    assert "cat, taken for <dog>" in text
    cells = [data for data in page.text if data in {"3", "1", "4"}]
    assert cells.count("3") == 1 and cells.count("4") >= 1
    assert sum(tag == "img" for tag, _ in page.tags) == 3
    assert sum(tag == "svg" for tag, _ in page.tags) == 1


def test_loads_nothing_from_elsewhere(report):
    for tag, attributes in Page(report.read_text()).tags:
        for name in ("src", "href", "xlink:href"):
            value = attributes.get(name, "")
            assert value == "" or value.startswith(("data:", "#")), (tag, name, value[:80])
        assert tag not in {"script", "link", "iframe"}


def test_leaves_no_partial_file(report):
    assert sorted(os.listdir(report.parent)) == ["metrics.csv", "report.html"]


def test_reads_metrics_without_blank_cells(report):
    series = read_metrics(report.parent / "metrics.csv")
    assert series["loss"] == [(10, 2.5), (20, 1.25)]
    assert series["eval_top1"] == [(20, 0.75)]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to render the page")
def test_chromium_renders_it(report, tmp_path):
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--window-size=1000,1400",
    ]
    picture = tmp_path / "page.png"
    subprocess.run(
        [
            CHROMIUM,
            *flags,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={picture}",
            report.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    from PIL import Image

    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    colorful = (pixels.max(axis=-1) - pixels.min(axis=-1)) > 40
    assert colorful.any(), "neither curves nor confusion matrix were drawn"
    left, right = pixels[:, :8], pixels[:, -8:]
    assert (left == 255).all() and (right == 255).all(), "the page is wider than the window"
