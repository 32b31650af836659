// What is shown of an answer: bars of the most probable classes, the part of the photo that the model
// sees, and over it the attention that its parts get, or the classes of its pixels.

import SETTINGS from "page/assets";

const TOP = 5;
const SIDE = 1024;
// Viridis, at every quarter of [0, 1].
const COLORS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

const ACTIVATIONS = {
  softmax(logits) {
    const largest = logits.reduce((a, b) => Math.max(a, b));
    const exponentials = Array.from(logits, (value) => Math.exp(value - largest));
    const sum = exponentials.reduce((a, b) => a + b);
    return exponentials.map((value) => value / sum);
  },
  linear: (numbers) => Array.from(numbers),
  sigmoid: (logits) => Array.from(logits, (value) => 1 / (1 + Math.exp(-value))),
};

const labelOf = (index) => SETTINGS.labels?.[index] ?? `class ${index}`;

function requireNumbers(logits) {
  if (!logits.every(Number.isFinite))
    throw new Error("The model gives values that are no numbers. Its training may have diverged.");
}

// Returns the class of each pixel, row by row.
export function classesOfPixels(logits) {
  requireNumbers(logits);
  const map = new Uint16Array(SETTINGS.image_size[0] * SETTINGS.image_size[1]);
  const count = logits.length / map.length;
  for (let pixel = 0, i = 0; pixel < map.length; pixel++, i += count)
    for (let k = 1; k < count; k++) if (logits[i + k] > logits[i + map[pixel]]) map[pixel] = k;
  return map;
}

// Returns the classes of the largest areas, as `topClasses`: a probability is a part of the pixels.
export function largestAreas(map) {
  const counts = new Map();
  for (const index of map) counts.set(index, (counts.get(index) ?? 0) + 1);
  const order = [...counts].sort(([a, first], [b, second]) => second - first || a - b);
  return order.slice(0, TOP).map(([index, count]) => ({
    label: labelOf(index),
    probability: count / map.length,
    color: `rgb(${colorOf(index)})`,
  }));
}

// The colors of the Pascal VOC challenge: the bits of a number go to red, green and blue in turns.
const colorOf = (index) =>
  [0, 1, 2].map((channel) =>
    [0, 1, 2].reduce((sum, place) => sum + (((index >> (3 * place + channel)) & 1) << (7 - place)), 0),
  );

// Returns the most probable classes, [{ label, probability }], the best first; with thresholds those
// that reach theirs, or one without a probability where none does.
export function topClasses(logits) {
  requireNumbers(logits);
  const probabilities = ACTIVATIONS[SETTINGS.activation](logits);
  if (SETTINGS.classifies === "number")
    return probabilities.map((number, index) => ({ label: labelOf(index), number }));
  // Logits whose probabilities round to the same are in their own order.
  const order = probabilities.map((_, index) => index).sort((a, b) => logits[b] - logits[a]);
  const least = SETTINGS.thresholds;
  const shown = least ? order.filter((index) => probabilities[index] >= least[index]) : order;
  if (!shown.length) return [{ label: "none of these classes" }];
  const count = SETTINGS.classifies === "labels" ? shown.length : TOP;
  return shown.slice(0, count).map((index) => ({
    label: labelOf(index),
    probability: probabilities[index],
  }));
}

function percent(part) {
  if (part === undefined) return "";
  if (part < 0.0005) return "< 0.1 %";
  if (part >= 0.9995) return "> 99.9 %";
  return `${(100 * part).toFixed(part > 0.0995 && part < 0.995 ? 0 : 1)} %`;
}

const said = (probability, number) =>
  number === undefined ? percent(probability) : `${Number(number.toPrecision(5))}`;

export function showBars(list, classes) {
  list.replaceChildren(
    ...classes.map(({ label, probability, number, color }) => {
      const item = document.createElement("li");
      const [name, value, bar] = ["span", "span", "div"].map((tag) => document.createElement(tag));
      name.textContent = label;
      name.className = "name";
      if (color) name.prepend(document.createElement("i"));
      if (color) name.firstChild.style.background = color;
      value.textContent = said(probability, number);
      value.className = "value";
      bar.className = "bar";
      bar.setAttribute("aria-hidden", "true");
      item.append(name, value, bar);
      requestAnimationFrame(() => bar.style.setProperty("--share", probability ?? 0));
      return item;
    }),
  );
}

export const spoken = (classes) =>
  classes.map(({ label, probability, number }) => `${label}, ${said(probability, number)}`).join("; ");

export function showImage(canvas, bitmap, [left, top, width, height]) {
  const [w, h] = [width * bitmap.width, height * bitmap.height];
  // Small images are enlarged by whole pixels, so that they do not look like a bad photo.
  const scale = Math.max(w, h) < 128 ? Math.ceil(256 / Math.max(w, h)) : Math.min(1, SIDE / Math.max(w, h));
  canvas.width = Math.max(1, Math.round(w * scale));
  canvas.height = Math.max(1, Math.round(h * scale));
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = scale < 1;
  context.imageSmoothingQuality = "high";
  context.drawImage(
    bitmap, left * bitmap.width, top * bitmap.height, w, h, 0, 0, canvas.width, canvas.height,
  );
  // The model sees no transparency.
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 3; i < pixels.data.length; i += 4) pixels.data[i] = 255;
  context.putImageData(pixels, 0, 0);
}

// Colors what the model draws from. `map` has [rows, columns] values in [0, 1]; beyond the last
// patch the model sees nothing.
export function showAttention(canvas, image, map, [rows, columns]) {
  const small = colored(map, rows, columns, (value) => {
    const below = Math.min(Math.floor(4 * value), 3);
    return COLORS[below].map(
      (from, channel) => from + (4 * value - below) * (COLORS[below + 1][channel] - from),
    );
  });
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.fillStyle = `rgb(${COLORS[0]})`;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const [height, width] = SETTINGS.image_size.map((side) => side / SETTINGS.stride);
  context.drawImage(small, 0, 0, (canvas.width * columns) / width, (canvas.height * rows) / height);
}

// Colors the class of each pixel.
export function showMask(canvas, image, map) {
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(colored(map, ...SETTINGS.image_size, colorOf), 0, 0, canvas.width, canvas.height);
}

// Returns a canvas with the color of each value, row by row.
function colored(values, rows, columns, colorOf) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const colors = new ImageData(columns, rows);
  values.forEach((value, index) => colors.data.set([...colorOf(value), 255], 4 * index));
  canvas.getContext("2d").putImageData(colors, 0, 0);
  return canvas;
}
