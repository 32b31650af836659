// From logits to the bars of the most probable classes.

import SETTINGS from "page/assets";

const TOP = 5;

const ACTIVATIONS = {
  softmax(logits) {
    const largest = logits.reduce((a, b) => Math.max(a, b));
    const exponentials = Array.from(logits, (value) => Math.exp(value - largest));
    const sum = exponentials.reduce((a, b) => a + b);
    return exponentials.map((value) => value / sum);
  },
  sigmoid: (logits) => Array.from(logits, (value) => 1 / (1 + Math.exp(-value))),
};

// Returns the most probable classes, [{ label, probability }], the best first.
export function topClasses(logits) {
  const probabilities = ACTIVATIONS[SETTINGS.activation](logits);
  const order = probabilities.map((_, index) => index).sort((a, b) => probabilities[b] - probabilities[a]);
  return order.slice(0, TOP).map((index) => ({
    label: SETTINGS.labels?.[index] ?? `class ${index}`,
    probability: probabilities[index],
  }));
}

function percent(part) {
  if (part < 0.0005) return "< 0.1 %";
  if (part >= 0.9995) return "> 99.9 %";
  return `${(100 * part).toFixed(part > 0.0995 && part < 0.995 ? 0 : 1)} %`;
}

export function showBars(list, classes) {
  list.replaceChildren(
    ...classes.map(({ label, probability }) => {
      const item = document.createElement("li");
      const [name, value, bar] = ["span", "span", "div"].map((tag) => document.createElement(tag));
      name.textContent = label;
      name.className = "name";
      value.textContent = percent(probability);
      value.className = "value";
      bar.className = "bar";
      bar.setAttribute("aria-hidden", "true");
      item.append(name, value, bar);
      requestAnimationFrame(() => bar.style.setProperty("--share", probability));
      return item;
    }),
  );
}

export const spoken = (classes) =>
  classes.map(({ label, probability }) => `${label}, ${percent(probability)}`).join("; ");
