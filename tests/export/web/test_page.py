"""The page as a stranger uses it, in a real Chromium."""

import contextlib
import json
import re

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

import keras_vit
from keras_vit import export
from keras_vit.export.verification.browser import served
from keras_vit.export.web.to_web import MODEL
from keras_vit.prepare_photos import prepare_photo, read_photo
from tests.odd_photos import CASES

READY = "html[data-ready]"
# What LiteRT.js and the interpreter differ by in float32, and what a GPU does.
ROUNDING, ON_GPU = 2e-5, 1e-3


def choose(page, file):
    """Chooses a file, and returns the logits and the words of the answer."""
    page.evaluate("delete document.documentElement.dataset.logits")
    page.set_input_files("#file", file)
    return answered(page)


def answered(page):
    page.wait_for_selector("html[data-logits]", state="attached")
    logits = json.loads(page.locator("html").get_attribute("data-logits"))
    return np.array(logits), page.locator("#bars li").all_inner_texts()


def rollout_of(page):
    page.wait_for_selector("html[data-rollout]", state="attached")
    return np.array(json.loads(page.locator("html").get_attribute("data-rollout")))


def visit_again(page):
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.reload()
    page.wait_for_selector(READY, state="attached")


def by_interpreter(site, file, signature="serving_default"):
    operations = "decode|resize_small(36)|central_crop(32)|value_range(0,1)"
    image = prepare_photo(read_photo(file), operations)
    interpreter = Interpreter(str(site / "assets" / MODEL))
    (values,) = interpreter.get_signature_runner(signature)(image=image[None]).values()
    return values[0]


def assert_agrees(page, site, file, atol=ROUNDING):
    """The page gives the logits of the interpreter for a file."""
    logits, _ = choose(page, file)
    np.testing.assert_allclose(logits, by_interpreter(site, file), atol=atol, err_msg=file.name)


def error_of(page, file):
    page.evaluate("document.getElementById('error').hidden = true")
    page.set_input_files("#file", file)
    page.wait_for_selector("#error:not([hidden])")
    return page.get_by_role("alert").inner_text()


def test_answers_are_those_of_the_interpreter(page, model, site, photo):
    logits, bars = choose(page, photo)
    expected = by_interpreter(site, photo)
    np.testing.assert_allclose(logits, expected, atol=ROUNDING)
    probabilities = np.exp(expected) / np.exp(expected).sum()
    order = np.argsort(-probabilities)
    names = [model.class_names[index] for index in order]
    assert [bar.split("\n")[0] for bar in bars] == names
    first = re.search(r"([\d.]+) %", bars[0])
    assert float(first[1]) == pytest.approx(100 * probabilities.max(), abs=0.51)
    status = page.get_by_role("status").inner_text()
    assert status.startswith(f"Most probable: {names[0]}, ")
    assert re.fullmatch(r"[\d.]+ ms on CPU, \d+ ms to prepare the image", page.inner_text("#times"))
    assert page.title() == "Birds & co" and page.inner_text("h1") == "Birds & co"


TIFFS = [name for name in CASES if "TIFF" in name]
TURNED_WEBPS = [f"WEBP {number}" for number in range(2, 9)]
TRANSPARENT = ["alpha", "palette with transparency"]
OTHERS = [name for name in CASES if name not in (*TIFFS, *TURNED_WEBPS, *TRANSPARENT)]


def fails(names, reason):
    return pytest.param(names, marks=pytest.mark.xfail(strict=True, reason=reason), id=reason)


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(OTHERS, id="others"),
        fails(TURNED_WEBPS, "Chromium does not turn them"),
        fails(TRANSPARENT, "a canvas keeps no color below alpha 0"),
    ],
)
def test_photos_are_read_as_ours(page, site, tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(CASES[name][0])
        assert_agrees(page, site, tmp_path / name)


@pytest.mark.parametrize(
    "size", [pytest.param((2600, 3700), id="in several strips", marks=pytest.mark.long), (400, 37)]
)
def test_photos_of_any_size_are_prepared_as_ours(page, site, photo, tmp_path, size):
    file = tmp_path / "photo.png"
    Image.open(photo).resize(size).save(file)
    assert_agrees(page, site, file)


def test_jpeg_decoders_differ_by_rounding(page, site, photo, tmp_path):
    Image.open(photo).save(tmp_path / "photo.jpg", quality=95)
    expected = by_interpreter(site, tmp_path / "photo.jpg")
    assert_agrees(page, site, tmp_path / "photo.jpg", 0.02 * np.abs(expected).max())


def test_where_the_model_looks(page, model, site, photo):
    choose(page, photo)
    assert page.locator("#attention").is_hidden()
    page.get_by_role("switch", name="Show where the model looks").check()
    drawn = rollout_of(page)
    expected = by_interpreter(site, photo, "attention_rollout")
    np.testing.assert_allclose(drawn.reshape(expected.shape), expected, atol=ROUNDING)
    image = prepare_photo(read_photo(photo), model.preprocessing)[None]
    reference = keras_vit.analysis.attention_rollout(model, image)[0]
    np.testing.assert_allclose(expected, reference, atol=ROUNDING)
    page.locator("#attention").wait_for()
    assert page.get_by_text("Least attention").is_visible()


@pytest.mark.long
def test_threads_and_gpu_give_the_same(page, site, photo):
    assert page.get_by_role("radio", name="threads").is_disabled()
    # The service worker adds the headers that threads need, from the next visit on.
    visit_again(page)
    expected = by_interpreter(site, photo)
    looked = by_interpreter(site, photo, "attention_rollout")
    page.locator("#show-attention").evaluate("(input) => (input.checked = true)")
    choose(page, photo)
    for backend, name, limit in (
        ("threads", r"CPU, \d threads", ROUNDING),
        ("webgpu", "GPU", ON_GPU),
        ("wasm", "CPU", ROUNDING),
    ):
        label = page.locator(f".segments label:has([value={backend}])")
        if label.locator("input").is_disabled():  # one core, or no GPU
            continue
        page.evaluate("delete document.documentElement.dataset.logits")
        page.evaluate("delete document.documentElement.dataset.rollout")
        label.click()
        logits, _ = answered(page)
        np.testing.assert_allclose(logits, expected, atol=limit)
        assert re.search(rf" ms on {name}, \d", page.inner_text("#times"))
        np.testing.assert_allclose(rollout_of(page), looked.ravel(), atol=limit)


def test_files_that_are_no_images_and_images_that_are_too_large(page, photo, tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    message = error_of(page, tmp_path / "notes.txt")
    assert message.startswith("Expected an image") and "notes.txt" in message
    (tmp_path / "half.png").write_bytes(photo.read_bytes()[:200])
    assert "half.png cannot be read" in error_of(page, tmp_path / "half.png")
    for name in TIFFS:
        (tmp_path / "photo").write_bytes(CASES[name][0])
        assert "photo cannot be read" in error_of(page, tmp_path / "photo")
    Image.new("1", (9000, 9000)).save(tmp_path / "huge.png")
    message = error_of(page, tmp_path / "huge.png")
    assert "at most 67 megapixels" in message and "9,000 × 9,000" in message
    # And the next photo is as good as ever.
    choose(page, photo)
    assert page.locator("#error").is_hidden()
    # No answer stands beside the error of another image.
    assert error_of(page, tmp_path / "half.png")
    for name in ("picture", "bars", "times"):
        assert page.locator(f"#{name}").is_hidden()
    assert page.locator("#status").inner_text() == ""
    assert page.locator("#choose").is_visible()
    choose(page, photo)
    assert page.locator("#picture").is_visible()


def test_transparent_pixels_are_shown_as_the_model_sees_them(page, tmp_path):
    pixels = np.full((64, 64, 4), (200, 100, 50, 255), np.uint8)
    pixels[:, 32:, 3] = 0
    Image.fromarray(pixels).save(tmp_path / "half.png")
    choose(page, tmp_path / "half.png")
    alpha = page.evaluate(
        """() => {
            const canvas = document.getElementById("image");
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return Math.min(...pixels.data.filter((_, i) => i % 4 === 3));
        }"""
    )
    assert alpha == 255


def test_percentages_of_an_answer_add_up(page):
    shown = page.evaluate(
        """async () => {
            const { spoken } = await import("page/answer");
            const parts = [0.998, 0.002, 0.9997, 0.0003, 0.5, 0.05];
            return parts.map((probability) => spoken([{ label: "", probability }]).slice(2));
        }"""
    )
    assert shown == ["99.8 %", "0.2 %", "> 99.9 %", "< 0.1 %", "50 %", "5.0 %"]


def test_no_request_leaves_the_page_and_it_needs_no_network(open_page, photo, site):
    server = contextlib.ExitStack()
    address = server.enter_context(served(site))
    page = open_page(address)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    visit_again(page)
    choose(page, photo)
    assert requests
    assert [url for url in requests if not url.startswith((address, "blob:", "data:"))] == []
    refused = page.evaluate(
        "fetch('https://example.com/').then(() => 'sent', (error) => error.message)"
    )
    assert refused != "sent"
    for _ in range(200):
        if page.evaluate("caches.match('code/page.css').then(Boolean)"):
            break
        page.wait_for_timeout(50)
    server.close()
    page.reload()
    page.wait_for_selector(READY, state="attached")
    assert_agrees(page, site, photo)


def test_a_single_file_opens_without_a_server(open_page, model, site, photo, tmp_path):
    file = export.to_web(model, tmp_path / "page.html", quantization="none", single_file=True)
    page = open_page(file.as_uri())
    assert_agrees(page, site, photo)
    assert page.get_by_role("radio", name="threads").is_disabled()


def test_a_folder_that_no_server_gives_out_says_so(browser, site):
    context = browser.new_context()
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    assert "python -m http.server" in page.inner_text("#loading")
    context.close()


def test_examples_dropped_and_photographed_images(page, site, example, tmp_path):
    page.get_by_role("button", name="Example 1").click()
    logits, _ = answered(page)
    Image.fromarray(example).save(tmp_path / "example.png")
    expected = by_interpreter(site, tmp_path / "example.png")
    np.testing.assert_allclose(logits, expected, atol=ROUNDING)
    page.evaluate("delete document.documentElement.dataset.logits")
    page.evaluate(
        """async () => {
        const data = new DataTransfer();
        const image = document.querySelector("#examples img");
        const canvas = Object.assign(document.createElement("canvas"), { width: 64, height: 64 });
        canvas.getContext("2d").drawImage(image, 0, 0, 64, 64);
        const blob = await new Promise((resolve) => canvas.toBlob(resolve));
        data.items.add(new File([blob], "dropped.png", { type: "image/png" }));
        document.body.dispatchEvent(
          new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }"""
    )
    dropped, _ = answered(page)
    assert np.abs(dropped - logits).max() > 1e-4
    page.evaluate("delete document.documentElement.dataset.logits")
    page.get_by_role("button", name="Take a photo").click()
    page.get_by_role("button", name="Take it").click()
    answered(page)
    assert page.get_by_role("img", name="photo.png").is_visible()


def test_keyboard_alone(page):
    names = []
    for _ in range(8):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate(
                "(document.activeElement.labels?.[0] ?? document.activeElement).innerText"
                " || document.activeElement.querySelector('img')?.alt"
            )
        )
    assert names[:4] == ["Choose an image", "Take a photo", "Example 1", "CPU"]
    assert "Model and licenses" in names
    page.get_by_text("Model and licenses").click()
    page.get_by_text("Version 2.0, January 2004").wait_for()


@pytest.mark.long
def test_light_and_dark_and_narrow(open_page, address, photo):
    backgrounds = set()
    for scheme in ("light", "dark"):
        page = open_page(
            address, color_scheme=scheme, viewport={"width": 320, "height": 640}, is_mobile=True
        )
        choose(page, photo)
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert len(backgrounds) == 2
