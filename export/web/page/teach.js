// Classes that the page learns on this device, from the model's features of a few photos: least
// squares with a penalty, as keras_vit.few_shot_head solves it.

import SETTINGS from "page/assets";

let examples = []; // [{ name, features }]
let head = null; // solved when it is asked for: { names, kernel: a row for each class, bias }

export const counts = () =>
  examples.reduce((found, { name }) => found.set(name, (found.get(name) ?? 0) + 1), new Map());

export function add(name, features) {
  examples.push({ name, features: Array.from(features) });
  head = null;
}

export function forget(name) {
  examples = examples.filter((each) => each.name !== name);
  head = null;
}

// Returns the scores of the classes, whose names stand in SETTINGS.labels; null before there are two.
export function scores(features) {
  head ??= solve();
  if (!head) return null;
  return head.kernel.map((row, k) => row.reduce((sum, w, j) => sum + w * features[j], head.bias[k]));
}

function solve() {
  const { l2, bias: constant, floor } = SETTINGS.teach;
  const names = [...counts().keys()].sort();
  SETTINGS.labels = names;
  if (names.length < 2) return null;
  const rows = examples.map(({ features }) => features);
  const [n, d] = [rows.length, rows[0].length];
  const mean = Array.from({ length: d }, (_, j) => rows.reduce((sum, row) => sum + row[j], 0) / n);
  const scale = mean.map(
    (center, j) => Math.sqrt(rows.reduce((sum, row) => sum + (row[j] - center) ** 2, 0) / n) + floor,
  );
  const x = rows.map((row) => [...row.map((value, j) => (value - mean[j]) / scale[j]), constant]);
  // The Cholesky factor of X X' + l2 I, which has a row and a column for each photo.
  const factor = x.map(() => new Float64Array(n));
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      let sum = x[i].reduce((total, value, c) => total + value * x[j][c], i === j ? l2 : 0);
      for (let c = 0; c < j; c++) sum -= factor[i][c] * factor[j][c];
      factor[i][j] = i === j ? Math.sqrt(sum) : sum / factor[j][j];
    }
  const kernel = [];
  const bias = [];
  for (const name of names) {
    const y = examples.map((each) => (each.name === name ? 1 : -1));
    for (let i = 0; i < n; i++) {
      for (let c = 0; c < i; c++) y[i] -= factor[i][c] * y[c];
      y[i] /= factor[i][i];
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let c = i + 1; c < n; c++) y[i] -= factor[c][i] * y[c];
      y[i] /= factor[i][i];
    }
    const weights = scale.map((side, j) => x.reduce((sum, row, i) => sum + row[j] * y[i], 0) / side);
    kernel.push(weights);
    const shift = weights.reduce((sum, weight, j) => sum + weight * mean[j], 0);
    bias.push(constant ** 2 * y.reduce((sum, value) => sum + value, 0) - shift);
  }
  return { names, kernel, bias };
}

// Returns the text of a file that `load` reads: the photos' features, not the photos, and the head.
export const saved = () =>
  JSON.stringify({ model: SETTINGS.teach.model, examples, head: (head ??= solve()) });

export function load(text) {
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    // Told below.
  }
  if (!Array.isArray(found?.examples)) throw new Error("Expected a file that this page saved.");
  if (found.model !== SETTINGS.teach.model)
    throw new Error("Expected classes that were taught to this model. These are of another one.");
  const length = found.examples[0]?.features?.length;
  const isRight = ({ name, features }) =>
    typeof name === "string" && features?.length === length && features.every(Number.isFinite);
  if (!length || !found.examples.every(isRight)) throw new Error("The file of classes is damaged.");
  examples = found.examples;
  head = null;
}
