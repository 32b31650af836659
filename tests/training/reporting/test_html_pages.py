import base64
import html.parser
import io
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from keras_vit.training.io.atomic import write_text
from keras_vit.training.prediction.predictor import Prediction
from keras_vit.training.reporting.html_pages import PANELS, _panels, predictions_html, report_html
from keras_vit.training.reporting.metrics_csv import read_metrics
from keras_vit.training.tasks.base import Picture, Section
from keras_vit.training.tasks.classification.evaluation import class_sections

VOID = {"meta", "img", "br", "link", "hr", "wbr"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(html.parser.HTMLParser):
    """Collects what a page holds, and insists that every tag is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def report(tmp_path):
    metrics = tmp_path / "metrics.csv"
    metrics.write_text("step,loss,eval_loss,eval_top1\n10,2.5,,\n20,1.25,1.5,0.75\n")
    image = np.full((8, 8, 3), (200, 100, 0))
    shown = {"title": "cats & <dogs>", "subtitle": "of /a/b", "config": '{"seed": 0}'}
    shown |= {"series": read_metrics(metrics), "tiles": {"top-1 accuracy": "75.00 %"}}
    names, confusion = ["cat", "<dog>", "a <very> long name"], [[3, 1, 0], [0, 4, 0], [2, 0, 0]]
    attention = np.eye(2)[[1]].repeat(4, 1).repeat(8, 0)
    wrong = Picture(image, "cat, taken for <dog>", "cat", {"attention": attention}, "wrong")
    pictures = [wrong, Picture(image[..., :1], "<dog>", "<dog>")]
    shown["sections"] = class_sections(np.array(confusion), names)
    shown["sections"] += [Section("examples", "Examples", pictures=pictures)]
    shown["files"] = ["hub/", "my model.tflite"]
    write_text(tmp_path / "report.html", report_html(**shown))
    ranked = [("cat", 0.9998), ("a very long name" * 9, 2e-4)]
    found = Prediction("/a/b/c.png", ranked=ranked, image=np.uint8(image))
    write_text(tmp_path / "photos.html", predictions_html("m", [found]))
    return tmp_path / "report.html"


def test_a_page_is_well_formed_and_loads_nothing_and_has_the_colors_of_its_side(report):
    raw = report.read_text()
    page = Page(raw)
    text = "|".join(page.text)
    ids = {attributes.get("id") for _, attributes in page.tags}
    assert {"curves", "classes", "confusion", "examples", "files", "config"} <= ids
    assert "cats & <dogs>" in text and "75.00 %" in text and "cat, taken for <dog>" in text
    # The worst recall first; images, recall, precision, mostly mistaken for.
    start = text[text.index("Worst recall first: 3 of 3") :]
    assert start.index("a <very> long name") < start.index("cat") < start.index("<dog>")
    assert "cat|4|75.00|60.00|<dog> (1)" in text
    titles = [attributes.get("title") for tag, attributes in page.tags if tag == "th"]
    assert titles.count("a <very> long name") == 3
    assert sum(tag == "img" for tag, _ in page.tags) == 3
    # One for each panel, so that phones show them one below the other.
    assert sum(tag == "svg" for tag, _ in page.tags) == 2
    assert page.tags.count(("wbr", {})) == 2  # A path breaks at its slashes.
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert links == ["hub/", "my%20model.tflite"]
    for tag, attributes in page.tags:
        for name in ("src", "xlink:href"):
            value = attributes.get(name, "")
            assert value == "" or value.startswith(("data:", "#")), (tag, name, value[:80])
        assert tag not in {"script", "link", "iframe"}
    assert "prefers-color-scheme: dark" in raw and "color-scheme: light dark" in raw
    svg = raw[raw.index("<svg") : raw.index("</svg>")]
    # Lines and numbers of the axes take the color of the text, and nothing is painted beneath.
    assert "currentColor" in svg and "#000000" not in svg and "#ffffff" not in svg
    # Attention is in color over the image in gray.
    (picture,) = (a for tag, a in page.tags if a.get("alt") == "attention of cat")
    drawn = Image.open(io.BytesIO(base64.b64decode(picture["src"].partition(",")[2])))
    # The ends of viridis over a gray of 100, and no black.
    assert drawn.getpixel((0, 48)) == (81, 41, 90)
    assert drawn.getpixel((95, 48)) == (192, 179, 62)
    assert ("span", {"class": "legend"}) in page.tags
    # A shadow says that there is more.
    assert ("div", {"class": "scroll"}) in page.tags and "right / 2rem 100% local" in raw
    text = report.with_name("photos.html").read_text()
    assert "&gt; 99.9 %" in text and "&lt; 0.1 %" in text and ">100.0 %" not in text


def test_own_columns_are_drawn_and_what_no_chart_is_for_is_not():
    columns = ["loss", "eval_top5", "gradient_norm", "weight_norm", "eval_count"]
    assert [*_panels(columns)] == [*PANELS, "weight_norm"]


def test_thousands_of_classes_are_a_page_still():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3000, 2000)
    predictions = np.where(rng.uniform(size=2000) < 0.5, labels, (labels + 7) % 3000)
    confusion = np.zeros((3000, 3000), np.int64)
    np.add.at(confusion, (labels, predictions), 1)
    names = [f"class {number}" for number in range(3000)]
    texts = {"title": "t", "subtitle": "s", "config": ""}
    sections = class_sections(confusion, names)
    page = Page(report_html(**texts, series={}, tiles={}, sections=sections))
    text = "|".join(page.text)
    assert f"50 of {len(set(labels)):,} classes with images" in text
    assert len([attributes for tag, attributes in page.tags if tag == "tr"]) == 1 + 50 + 1 + 20
    most = np.max(confusion * (1 - np.eye(3000, dtype=int)))
    assert re.search(rf"taken for\|class \d+\|{most}\|class \d+", text)
    assert "Confusion matrix" not in text and len(text) < 20_000


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to render the page")
@pytest.mark.parametrize("width", [1000, 360])
@pytest.mark.parametrize("name", ["report.html", "photos.html"])
def test_chromium_renders_it(report, tmp_path, name, width):
    # A window cannot be as narrow as a phone.
    frame = f"<body style='margin: 0'><iframe src={name} width={width} height=1400 frameborder=0>"
    (tmp_path / "frame.html").write_text(frame)
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --hide-scrollbars"
    flags += " --window-size=1000,1400 --allow-file-access-from-files"
    picture = tmp_path / "page.png"
    places = [f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}"]
    command = [CHROMIUM, *flags.split(), *places, (tmp_path / "frame.html").as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    colorful = (pixels.max(axis=-1) - pixels.min(axis=-1)) > 40
    assert colorful.any(), "neither curves nor confusion matrix were drawn"
    left, right = pixels[:, :8], pixels[:, width - 8 : width]
    assert (left == 255).all() and (right == 255).all(), "the page is wider than the window"
