import contextlib
import json
import re

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

import keras_vit
from keras_vit import export
from keras_vit.export.verification.browser import chromium, served
from keras_vit.export.web.to_web import MODEL
from keras_vit.few_shot_head import BIAS, L2
from keras_vit.models.image_model import HEADS
from keras_vit.photos.prepare_photos import prepare_photo, read_photo
from keras_vit.training.tasks.segmentation import palette
from tests.export.conftest import LABELS, verify
from tests.export.web.conftest import NAMES
from tests.odd_photos import CASES

READY = "html[data-ready]"
COLORS_OF_HALVES = """async () => {
  const canvas = document.createElement("canvas");
  const { showAttention } = await import("page/answer");
  showAttention(canvas, { width: 80, height: 40 }, Array(8).fill(1), [4, 2]);
  const pixels = canvas.getContext("2d");
  return [20, 60].map((x) => Array.from(pixels.getImageData(x, 20, 1, 1).data));
}"""
COLORS_OF_PIXELS = """([rows, columns]) => {
  const canvas = document.getElementById("attention");
  const context = canvas.getContext("2d");
  const found = [];
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++) {
      const place = [((x + 0.5) * canvas.width) / columns, ((y + 0.5) * canvas.height) / rows];
      found.push(...context.getImageData(...place.map(Math.floor), 1, 1).data.slice(0, 3));
    }
  return found;
}"""
# What LiteRT.js and the interpreter differ by in float32, and what a GPU does.
ROUNDING, ON_GPU = 2e-5, 1e-3
TIFFS = [name for name in CASES if "TIFF" in name]
TURNED_WEBPS = [f"WEBP {number}" for number in range(2, 9)]
TRANSPARENT = ["alpha", "palette with transparency"]
OTHERS = [name for name in CASES if name not in (*TIFFS, *TURNED_WEBPS, *TRANSPARENT)]


@pytest.fixture(scope="module")
def browser(with_browser):
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="package")
def address(site):
    with served(site) as address:
        yield address


@pytest.fixture
def open_page(browser):
    """Returns a function that opens an address and waits for the model."""
    with contextlib.ExitStack() as opened:

        def open_page(address, **options):
            page = opened.enter_context(browser.new_context(**options)).new_page()
            page.goto(address)
            page.wait_for_selector("html[data-ready]", state="attached")
            return page

        yield open_page


@pytest.fixture
def page(open_page, address):
    return open_page(address)


@pytest.fixture(scope="package")
def photo(tmp_path_factory):
    noise = np.random.default_rng(0).integers(0, 256, (9, 7, 3)).astype(np.uint8)
    file = tmp_path_factory.mktemp("photos") / "photo.png"
    Image.fromarray(noise).resize((90, 130), Image.Resampling.BICUBIC).save(file)
    return file


def choose(page, file):
    forget(page)
    page.set_input_files("#file", file)
    return shown(page)


def forget(page):
    page.evaluate("delete document.documentElement.dataset.logits")
    page.evaluate("delete document.documentElement.dataset.rollout")


def shown(page, name="logits"):
    page.wait_for_selector(f"html[data-{name}]", state="attached")
    return np.array(json.loads(page.locator("html").get_attribute(f"data-{name}")))


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
    expected = by_interpreter(site, file)
    np.testing.assert_allclose(choose(page, file), expected, atol=atol, err_msg=file.name)


def error_of(page, file):
    page.evaluate("document.getElementById('error').hidden = true")
    page.set_input_files("#file", file)
    page.wait_for_selector("#error:not([hidden])")
    return page.get_by_role("alert").inner_text()


def test_answers_are_those_of_the_interpreter(page, model, site, photo):
    assert_agrees(page, site, photo)
    bars = page.locator("#bars li").all_inner_texts()
    expected = by_interpreter(site, photo)
    probabilities = np.exp(expected) / np.exp(expected).sum()
    names = [model.class_names[index] for index in np.argsort(-probabilities)]
    assert [bar.split("\n")[0] for bar in bars] == names
    first = float(re.search(r"([\d.]+) %", bars[0])[1])
    assert first == pytest.approx(100 * probabilities.max(), abs=0.51)
    assert page.get_by_role("status").inner_text().startswith(f"Most probable: {names[0]}, ")
    assert re.fullmatch(r"[\d.]+ ms on CPU, \d+ ms to prepare the image", page.inner_text("#times"))
    assert page.title() == "Birds & co" and page.inner_text("h1") == "Birds & co"
    percentages = page.evaluate(
        """async () => {
            const { spoken } = await import("page/answer");
            const parts = [0.998, 0.002, 0.9997, 0.0003, 0.5, 0.05];
            return parts.map((probability) => spoken([{ label: "", probability }]).slice(2));
        }"""
    )
    assert percentages == ["99.8 %", "0.2 %", "> 99.9 %", "< 0.1 %", "50 %", "5.0 %"]


def fails(names, reason):
    return pytest.param(names, marks=pytest.mark.xfail(strict=True, reason=reason), id=reason)


@pytest.mark.rows(
    pytest.param(OTHERS, id="others"),
    fails(TURNED_WEBPS, "Chromium does not turn them"),
    fails(TRANSPARENT, "a canvas keeps no color below alpha 0"),
)
def test_photos_are_read_as_ours(names, page, site, tmp_path):
    for name in names:
        (tmp_path / name).write_bytes(CASES[name][0])
        assert_agrees(page, site, tmp_path / name)


@pytest.mark.rows(
    ((2600, 3700), "photo.png"),  # in several strips
    ((400, 37), "photo.png"),
    ((90, 130), "photo.jpg"),
)
def test_photos_of_any_size_are_prepared_as_ours(size, name, page, site, photo, tmp_path):
    file = tmp_path / name
    Image.open(photo).resize(size).save(file, quality=95)
    jpeg = 0.02 * np.abs(by_interpreter(site, file)).max()  # Decoders of JPEG differ by rounding.
    assert_agrees(page, site, file, ROUNDING if file.suffix == ".png" else jpeg)


def test_where_the_model_looks(page, model, site, photo):
    choose(page, photo)
    assert page.locator("#attention").is_hidden()
    page.get_by_role("switch", name="Show where the model looks").check()
    expected = by_interpreter(site, photo, "attention_rollout")
    np.testing.assert_allclose(shown(page, "rollout"), expected.ravel(), atol=ROUNDING)
    image = prepare_photo(read_photo(photo), model.preprocessing)[None]
    reference = keras_vit.analysis.attention_rollout(model, image)[0]
    np.testing.assert_allclose(expected, reference, atol=ROUNDING)
    page.locator("#attention").wait_for()
    # Two of four columns of patches are half of an image; nothing sees the rest.
    left, right = page.evaluate(COLORS_OF_HALVES)
    assert left == [253, 231, 37, 255] and right == [68, 1, 84, 255]
    assert page.get_by_text("Least attention").is_visible()
    style = "([id, key]) => getComputedStyle(document.getElementById(id))[key]"
    assert page.evaluate(style, ["image", "filter"]) == "grayscale(1)"
    assert page.evaluate(style, ["attention", "opacity"]) == "0.6"


def test_classes_of_pixels_lie_over_photos_and_the_cameras(open_page, segmenter, scenes, tmp_path):
    site = export.to_web(segmenter, tmp_path / "site", quantization="none")
    pixels = np.rint(255 * scenes[0]).astype("uint8")
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    image = (pixels / np.float32(255))[None]
    interpreter = Interpreter(str(site / "assets" / MODEL))
    (logits,) = interpreter.get_signature_runner("serving_default")(image=image).values()
    expected = logits[0].argmax(-1)
    with served(site) as address:
        page = open_page(address)
        page.set_input_files("#file", tmp_path / "photo.png")
        mask = shown(page, "mask").reshape(32, 48)
        assert (mask == expected).mean() > 0.999
        order = np.argsort(-np.bincount(mask.ravel(), minlength=5), kind="stable")
        bars = page.locator("#bars li").all_inner_texts()
        assert [bar.split("\n")[0] for bar in bars][:2] == [LABELS[k] for k in order[:2]]
        share = float(re.search(r"([\d.]+) %", bars[0])[1])
        assert share == pytest.approx(100 * (mask == order[0]).mean(), abs=0.51)
        status = page.get_by_role("status").inner_text()
        assert status.startswith(f"Largest areas: {LABELS[order[0]]}, ")
        page.locator("#attention").wait_for()
        colors = np.array(page.evaluate(COLORS_OF_PIXELS, [32, 48])).reshape(32, 48, 3)
        np.testing.assert_array_equal(colors, np.array(palette())[mask])
        page.get_by_role("switch", name="Show the classes of pixels").uncheck()
        page.locator("#attention").wait_for(state="hidden")
        page.evaluate("delete document.documentElement.dataset.mask")
        page.get_by_role("button", name="Take a photo").click()
        page.get_by_role("button", name="Take it").click()
        assert shown(page, "mask").shape == (32 * 48,)
    assert verify(segmenter, site, scenes).ok
    text = (site / "index.html").read_text()
    (site / "index.html").write_text(text.replace('"classifies": "pixel"', '"classifies": "image"'))
    (failure,) = verify(segmenter, site, scenes).failures
    assert "the page's classifies is 'image', its file's 'pixel'" in failure


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
        forget(page)
        label.click()
        np.testing.assert_allclose(shown(page), expected, atol=limit)
        assert re.search(rf" ms on {name}, \d", page.inner_text("#times"))
        np.testing.assert_allclose(shown(page, "rollout"), looked.ravel(), atol=limit)


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
    choose(page, photo)  # And the next photo is as good as ever.
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


def test_no_request_leaves_the_page_and_it_needs_no_network(open_page, photo, site):
    server, requests = contextlib.ExitStack(), []
    address = server.enter_context(served(site))
    page = open_page(address)
    page.on("request", lambda request: requests.append(request.url))
    visit_again(page)
    choose(page, photo)
    assert requests
    assert [url for url in requests if not url.startswith((address, "blob:", "data:"))] == []
    fetch = "fetch('https://example.com/').then(() => 'sent', (error) => error.message)"
    assert page.evaluate(fetch) != "sent"
    page.wait_for_function("caches.match('code/page.css').then(Boolean)")
    server.close()
    page.reload()
    page.wait_for_selector(READY, state="attached")
    assert_agrees(page, site, photo)


def test_a_single_file_needs_no_server(open_page, model, site, photo, tmp_path):
    file = export.to_web(model, tmp_path / "page.html", quantization="none", single_file=True)
    page = open_page(file.as_uri())
    assert_agrees(page, site, photo)
    assert page.get_by_role("radio", name="threads").is_disabled()
    page.goto((site / "index.html").as_uri())
    assert "python -m http.server" in page.inner_text("#loading")


def test_examples_dropped_and_photographed_images(page, site, example, tmp_path):
    page.get_by_role("button", name="Example 1").click()
    logits = shown(page)
    Image.fromarray(example).save(tmp_path / "example.png")
    expected = by_interpreter(site, tmp_path / "example.png")
    np.testing.assert_allclose(logits, expected, atol=ROUNDING)
    forget(page)
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
    assert np.abs(shown(page) - logits).max() > 1e-4
    forget(page)
    page.get_by_role("button", name="Take a photo").click()
    page.get_by_role("button", name="Take it").click()
    shown(page)
    assert page.get_by_role("img", name="photo.png").is_visible()


def test_keyboard_alone(page):
    names = []
    focused = "(document.activeElement.labels?.[0] ?? document.activeElement).innerText"
    focused += " || document.activeElement.querySelector('img')?.alt"
    for _ in range(8):
        page.keyboard.press("Tab")
        names.append(page.evaluate(focused))
    assert names[:4] == ["Choose an image", "Take a photo", "Example 1", "CPU"]
    assert "Model and licenses" in names
    page.get_by_text("Model and licenses").click()
    page.get_by_text("Version 2.0, January 2004").wait_for()


def test_light_and_dark_and_narrow(open_page, address, photo):
    backgrounds = set()
    phone = {"viewport": {"width": 320, "height": 640}, "is_mobile": True}
    for scheme in ("light", "dark"):
        page = open_page(address, color_scheme=scheme, **phone)
        choose(page, photo)
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert len(backgrounds) == 2


def compute_on(page, backend):
    label = page.locator(f".segments label:has([value={backend}])")
    if label.locator("input").is_disabled():
        pytest.skip(label.get_attribute("title"))
    label.click()


@pytest.mark.rows(
    ("wasm", {"num_classes": None}),
    ("wasm", {"classifier": "distilled"}),
    ("webgpu", {}),
)
def test_a_page_learns_classes_as_python_does(backend, arguments, open_page, make_vit, tmp_path):
    model, limit = make_vit(**arguments), 1e-4 if backend == "wasm" else ON_GPU
    model.preprocessing = "decode|resize_small(36)|central_crop(32)|value_range(-1,1)"
    site = export.to_web(model, tmp_path / "site", quantization="none", teach=True)
    rng, files = np.random.default_rng(0), []
    for number in range(7):
        files.append(tmp_path / f"{number}.png")
        pixels = rng.integers(0, 256, (40, 50, 3)).astype("uint8")
        pixels[..., number % 3] //= 3
        Image.fromarray(pixels).save(files[-1])
    names = ["red", "green <b>", "blue"]
    taught = [names[number % 3] for number in range(6)]
    expected = keras_vit.few_shot_head(model, files[:6], taught)
    image = prepare_photo(read_photo(files[6]), model.preprocessing)[None]
    logits = expected.predict(image, verbose=0)[0]
    with served(site) as address:
        page = open_page(address)
        compute_on(page, backend)
        assert page.locator("#teach-save").is_disabled()
        page.set_input_files("#teach-files", files[:1])
        assert error_of(page, tmp_path / "site/index.html").startswith("Expected an image")
        for name in names:
            page.fill("#teach-name", name)
            added = [file for file, each in zip(files, taught, strict=False) if each == name]
            page.set_input_files("#teach-files", added[:1])
            page.set_input_files("#file", added[1])
            page.wait_for_selector("#picture:not([hidden])")
            page.click("#teach-shown")
            count = f"""() => JSON.parse(document.documentElement.dataset.taught ?? "[]")
                .some(([name, count]) => name === {json.dumps(name)} && count === 2)"""
            page.wait_for_function(count)
        np.testing.assert_allclose(choose(page, files[6]), logits, atol=limit)
        assert f" ms on {'GPU' if backend == 'webgpu' else 'CPU'}, " in page.inner_text("#times")
        first = page.locator("#bars li").first.inner_text().split("\n")[0]
        assert first == expected.class_names[logits.argmax()]
        with page.expect_download() as download:
            page.click("#teach-save")
        download.value.save_as(tmp_path / "classes.json")
        head = json.loads((tmp_path / "classes.json").read_text())["head"]
        parts = [layer.get_weights() for layer in expected.layers if layer.name in HEADS]
        kernel, bias = np.concatenate([part for part, _ in parts]) / len(parts), parts[0][1]
        scale = np.abs(kernel).max()
        np.testing.assert_allclose(np.transpose(head["kernel"]), kernel, atol=limit * scale)
        np.testing.assert_allclose(head["bias"], bias, atol=limit * max(scale, 1))

        page.reload()
        page.wait_for_selector(READY, state="attached")
        compute_on(page, backend)
        page.set_input_files("#teach-load", tmp_path / "classes.json")
        page.wait_for_selector("html[data-taught]", state="attached")
        np.testing.assert_allclose(choose(page, files[6]), logits, atol=limit)
        page.get_by_role("button", name="Forget blue").click()
        page.wait_for_function(
            "() => JSON.parse(document.documentElement.dataset.taught).length === 2"
        )
        forget(page)
        page.get_by_role("button", name="Take a photo").click()
        page.get_by_role("button", name="Take it").click()
        assert len(shown(page)) == 2
        page.fill("#teach-name", "me")
        page.click("#teach-shown")
        page.wait_for_function(
            "() => JSON.parse(document.documentElement.dataset.logits).length === 3"
        )
        # A row of targets sums to -1, and the penalty touches only the constant of 5 photos.
        total = -5 * BIAS**2 / (5 * BIAS**2 + L2)
        assert shown(page).sum() == pytest.approx(total, abs=limit)
        text = (tmp_path / "classes.json").read_text()
        (tmp_path / "other.json").write_text(text.replace('"model":"', '"model":"0'))
        page.set_input_files("#teach-load", tmp_path / "other.json")
        page.wait_for_selector("#error:not([hidden])")
        assert "another one" in page.get_by_role("alert").inner_text()
    assert verify(model, site, image * 0.5 + 0.5).ok


@pytest.mark.rows(
    ("sigmoid", [0.5, 0.5, 0.9, 0.1, 0.5], [4, 3, 2, 1, -1], ["crow", "finch", "a < b"]),
    ("sigmoid", [0.5] * 5, [-1] * 5, ["none of these classes"]),
    ("softmax", [0.6] * 5, [0, 3, 0, 0, 0], ["finch"]),
    ("softmax", [0.6] * 5, [2, 3, 0, 0, 0], ["finch"]),
    ("softmax", [0.9] * 5, [2, 3, 0, 0, 0], ["none of these classes"]),
    ("linear", None, [3, 1, -2.5, 1e6, 0], [*NAMES]),
)
def test_thresholds_and_numbers_are_shown(
    activation, thresholds, logits, expected, make_vit, with_litert_js, open_page, tmp_path
):
    model = make_vit(num_layers=1)
    model.class_names, model.activation, model.thresholds = NAMES, activation, thresholds
    with served(export.to_web(model, tmp_path / "site", quantization="none")) as address:
        page = open_page(address)
        found = page.evaluate("async (x) => (await import('page/answer')).topClasses(x)", logits)
        spoken = page.evaluate("async (x) => (await import('page/answer')).spoken(x)", found)
    assert [each["label"] for each in found] == expected
    if activation == "linear":
        assert [each["number"] for each in found] == logits and "great tit, -2.5;" in spoken
