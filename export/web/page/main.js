// The page: from a photo to bars, with the model wherever it runs.

import { classesOfPixels, largestAreas, showAttention, showBars } from "page/answer";
import { showImage, showMask, spoken, topClasses } from "page/answer";
import SETTINGS, { keepOffline, loadText } from "page/assets";
import * as camera from "page/camera";
import { decode, prepare } from "page/photo";
import * as runtime from "page/runtime";
import * as teach from "page/teach";

const element = (id) => document.getElementById(id);
const TEACHES = Boolean(SETTINGS.teach);
const OF_PIXELS = SETTINGS.classifies === "pixel";
const NAMES = { wasm: "CPU", threads: `CPU, ${runtime.threads} threads`, webgpu: "GPU" };

let backend = null;
let shown = null; // { bitmap, values, region } of the photo that is shown, and the classes of pixels
let busy = Promise.resolve();

// One thing at a time: the model has one place for its inputs.
function inTurn(task) {
  busy = busy.then(task).catch(showError);
  return busy;
}

function showError(error) {
  console.error(error);
  element("error").textContent = error.message || String(error);
  element("error").hidden = false;
  element("loading").hidden = true;
  element("answer").removeAttribute("aria-busy");
}

// The browser draws what has changed before a long computation.
const drawn = () =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, 100); // a page in the background is not drawn
    requestAnimationFrame(() => requestAnimationFrame(() => (clearTimeout(timer), resolve())));
  });

const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

async function openModel(name) {
  element("error").hidden = element("waiting").hidden = true;
  element("loading").hidden = false;
  element("loading-text").textContent = "Loading the model";
  element("progress").value = 0;
  element("answer").setAttribute("aria-busy", "true");
  await runtime.open(name, (arrived, total) => {
    element("progress").value = arrived / total;
    element("loading-text").textContent =
      arrived < total
        ? `Loading the model, ${megabytes(arrived)} of ${megabytes(total)} MB`
        : "Preparing the model";
  });
  await runtime.run(new Float32Array(SETTINGS.image_size[0] * SETTINGS.image_size[1] * 3));
  backend = name;
  element("loading").hidden = true;
  element("answer").removeAttribute("aria-busy");
  element("waiting").hidden = Boolean(shown);
  const partly = name === "webgpu" && !runtime.isFullyAccelerated();
  element("backend-note").hidden = !partly;
  element("backend-note").textContent = "The GPU lacks some of this model's operations; the CPU computes them.";
}

async function showBackends() {
  const reasons = await runtime.backends();
  element("backends").querySelector(".segments").replaceChildren(
    ...Object.entries(reasons).map(([name, reason]) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: "backend", value: name, checked: name === backend });
      input.disabled = Boolean(reason);
      label.title = reason ?? "";
      input.addEventListener("change", () => inTurn(() => change(name)));
      const text = document.createElement("span");
      text.textContent = NAMES[name];
      label.append(input, text);
      if (reason) {
        const why = document.createElement("span");
        why.className = "hidden";
        why.textContent = reason;
        label.append(why);
      }
      return label;
    }),
  );
  element("backends").disabled = false;
}

async function change(name) {
  const before = backend;
  element("backends").disabled = true;
  try {
    await openModel(name);
    if (shown) await answer();
  } catch (error) {
    // What ran before runs again, and the reason why the other does not stays to be read.
    await openModel(before);
    element("backends").querySelector(`[value=${before}]`).checked = true;
    if (shown) await answer();
    throw new Error(`${NAMES[name]} cannot run this model: ${error.message || error}`);
  } finally {
    element("backends").disabled = false;
  }
}

async function look(file) {
  element("error").hidden = true;
  try {
    await show(file);
  } catch (error) {
    clear();
    throw error;
  }
}

// So that no answer stands beside the error of another image.
function clear() {
  shown?.bitmap.close();
  shown = null;
  delete document.documentElement.dataset[OF_PIXELS ? "mask" : "logits"];
  for (const id of ["picture", "bars", "times", "look"]) element(id).hidden = true;
  element("drop").hidden = element("waiting").hidden = false;
  element("status").textContent = "";
}

async function show(file) {
  const bitmap = await decode(file);
  const start = performance.now();
  const { values, region } = prepare(bitmap);
  shown?.bitmap.close();
  shown = { bitmap, values, region, preparation: performance.now() - start };
  showImage(element("image"), bitmap, region);
  element("attention").hidden = true;
  element("picture").hidden = false;
  element("drop").hidden = true;
  element("choose").textContent = "New image";
  element("image").setAttribute("aria-label", `Your image, ${file.name || "pasted"}, as the model sees it`);
  await answer();
  element("bars").firstElementChild?.scrollIntoView({ block: "nearest", behavior: "smooth" });
}

async function answer() {
  await drawn();
  const { values, milliseconds } = await runtime.run(shown.values, SETTINGS.teach?.signature);
  if (TEACHES) shown.features = values;
  const logits = TEACHES ? teach.scores(values) : values;
  if (!logits) return showTaught();
  if (OF_PIXELS) shown.mask = classesOfPixels(logits);
  const classes = OF_PIXELS ? largestAreas(shown.mask) : topClasses(logits);
  document.documentElement.dataset[OF_PIXELS ? "mask" : "logits"] = JSON.stringify(
    Array.from(OF_PIXELS ? shown.mask : logits),
  );
  element("waiting").hidden = true;
  element("bars").hidden = element("times").hidden = false;
  showBars(element("bars"), classes);
  element("status").textContent = `${OF_PIXELS ? "Largest areas" : "Most probable"}: ${spoken(classes)}.`;
  element("times").textContent =
    `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms on ${NAMES[backend]}, ` +
    `${shown.preparation.toFixed(0)} ms to prepare the image`;
  await showLook();
}

async function showLook() {
  if (!SETTINGS.rollout && !OF_PIXELS) return;
  element("look").hidden = false;
  const visible = element("show-attention").checked;
  if (visible && OF_PIXELS) showMask(element("attention"), element("image"), shown.mask);
  else if (visible) {
    await drawn();
    const { values: map } = await runtime.run(shown.values, "attention_rollout");
    showAttention(element("attention"), element("image"), map, SETTINGS.rollout);
    document.documentElement.dataset.rollout = JSON.stringify(Array.from(map));
  }
  element("attention").hidden = !visible;
}

function showExamples() {
  const list = element("examples").querySelector("ul");
  SETTINGS.examples.forEach((address, index) => {
    const button = document.createElement("button");
    const image = document.createElement("img");
    button.type = "button";
    Object.assign(image, { src: address, alt: `Example ${index + 1}` });
    button.append(image);
    button.addEventListener("click", () => inTurn(() => look(fileOf(address, `example ${index + 1}`))));
    const item = document.createElement("li");
    item.append(button);
    list.append(item);
  });
  element("examples").hidden = !SETTINGS.examples.length;
}

function fileOf(address, name) {
  const text = atob(address.slice(address.indexOf(",") + 1));
  return new File([Uint8Array.from(text, (c) => c.charCodeAt(0))], name, { type: "image/png" });
}

// With what the visitor taught, or says what is missing.
function showTaught() {
  element("taught").replaceChildren(
    ...[...teach.counts()].map(([name, count]) => {
      const item = document.createElement("li");
      const text = Object.assign(document.createElement("span"), { textContent: `${name}: ${count}` });
      const button = Object.assign(document.createElement("button"), { textContent: "Forget" });
      Object.assign(button, { type: "button", className: "button", ariaLabel: `Forget ${name}` });
      button.addEventListener("click", () => inTurn(() => (teach.forget(name), learned())));
      item.append(text, button);
      return item;
    }),
  );
  const ready = teach.counts().size > 1;
  element("teach-save").disabled = !ready;
  element("waiting").hidden = ready && Boolean(shown);
  element("waiting").textContent = ready ? "Choose an image to see its class." : "Teach two classes to see answers.";
  if (!ready) element("bars").hidden = element("times").hidden = true;
}

async function learned() {
  element("error").hidden = true;
  showTaught();
  if (shown) await answer();
  document.documentElement.dataset.taught = JSON.stringify([...teach.counts()]);
}

async function addPhotos(files) {
  const name = element("teach-name").value.trim();
  if (!name) throw new Error("Expected the name of a class above its photos.");
  try {
    for (const [index, file] of files.entries()) {
      element("status").textContent = `Photo ${index + 1} of ${files.length}`;
      const bitmap = await decode(file);
      const { values } = await runtime.run(prepare(bitmap).values, SETTINGS.teach.signature);
      bitmap.close();
      teach.add(name, values);
    }
  } finally {
    await learned(); // of those before one that cannot be read too
  }
}

function listenToTeacher() {
  element("teach").hidden = !TEACHES;
  if (!TEACHES) return;
  Object.assign(SETTINGS, { labels: [], activation: "softmax", thresholds: null, classifies: "image" });
  const chosen = (id, action) =>
    element(id).addEventListener("change", (event) => {
      const files = [...event.target.files];
      event.target.value = ""; // the same file can be chosen again
      inTurn(() => action(files));
    });
  chosen("teach-files", addPhotos);
  chosen("teach-load", async ([file]) => (teach.load(await file.text()), learned()));
  element("teach-shown").addEventListener("click", () =>
    inTurn(() => {
      const name = element("teach-name").value.trim();
      if (!name || !shown) throw new Error("Expected an image, and the name of its class.");
      teach.add(name, shown.features);
      return learned();
    }),
  );
  element("teach-save").addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([teach.saved()], { type: "application/json" }));
    Object.assign(document.createElement("a"), { href: address, download: "classes.json" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  });
  showTaught();
}

function listen() {
  const first = ([file] = []) => file && inTurn(() => look(file));
  for (const id of ["file", "capture"])
    element(id).addEventListener("change", (event) => {
      first(event.target.files);
      event.target.value = ""; // the same file can be chosen again
    });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.classList.add("dragging");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dragging");
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dragging");
    first(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => first(event.clipboardData.files));
  element("show-attention").addEventListener("change", () => shown && inTurn(showLook));
  element("take").hidden = !camera.there();
  element("take").addEventListener("click", async () => {
    if (camera.onPhone()) return element("capture").click();
    try {
      const photo = await camera.takePhoto();
      if (photo) inTurn(() => look(photo));
    } catch (error) {
      showError(error);
    }
  });
}

function showFacts() {
  document.documentElement.dataset.classifies = SETTINGS.classifies;
  element("show-attention").checked = OF_PIXELS;
  if (OF_PIXELS) element("look").querySelector("span").textContent = "Show the classes of pixels";
  element("facts").replaceChildren(
    ...Object.entries(SETTINGS.facts).flatMap(([name, value]) =>
      [["dt", name], ["dd", value]].map(([tag, text]) =>
        Object.assign(document.createElement(tag), { textContent: text }),
      ),
    ),
  );
  document.querySelector("details").addEventListener(
    "toggle",
    async () => (element("license").textContent = await loadText("LICENSE-LiteRT.txt")),
    { once: true },
  );
}

listen();
listenToTeacher();
showFacts();
showExamples();
await inTurn(async () => {
  await openModel("wasm");
  for (const id of ["file", "take"]) element(id).disabled = false;
  await showBackends();
  document.documentElement.dataset.ready = Math.round(performance.now());
});
await keepOffline();
