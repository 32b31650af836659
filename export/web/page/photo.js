// A photo, made into the image that the model takes: the operations of keras_vit/prepare_photos.py.

import SETTINGS from "page/assets";

const MOST_PIXELS = 2 ** 26;
// What is read of a photo at once: phones have no canvas as large as their photos.
const STRIP_PIXELS = 2 ** 22;

// Returns the photo in a file as an ImageBitmap, upright, in the colors that its file has.
export async function decode(file) {
  const { width, height } = await sizeOf(file);
  if (width * height > MOST_PIXELS)
    throw new Error(
      `Expected an image of at most ${millions(MOST_PIXELS)} megapixels. This one has ` +
        `${width.toLocaleString("en")} × ${height.toLocaleString("en")} pixels, ` +
        `${millions(width * height)} megapixels. Make it smaller and try again.`,
    );
  try {
    return await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  } catch {
    throw unreadable(file);
  }
}

const millions = (count) => Math.round(count / 1e6).toLocaleString("en");

const unreadable = (file) =>
  new Error(
    `Expected an image: a JPEG, PNG, WebP, GIF, AVIF or BMP file. ${file.name || "This file"} cannot be ` +
      "read as one. Choose another file, or save it as JPEG or PNG first.",
  );

// From the header alone: a small file may claim gigabytes of pixels.
async function sizeOf(file) {
  const address = URL.createObjectURL(file);
  const image = new Image();
  try {
    await new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = reject;
      image.src = address;
    });
  } catch {
    throw unreadable(file);
  } finally {
    URL.revokeObjectURL(address);
  }
  return { width: image.naturalWidth, height: image.naturalHeight };
}

// Applies the model's operations. Returns the values, (height, width, 3) float32, and the part of the
// photo that they show: left, top, width and height as parts of the whole.
export function prepare(bitmap) {
  let image = { ...ofBitmap(bitmap), region: [0, 0, 1, 1] };
  for (const { name, ...settings } of SETTINGS.operations)
    image = { ...image, ...OPERATIONS[name](image, settings) };
  return { values: valuesOf(image), region: image.region };
}

// An image is { height, width, channels, rows }, where rows(start, end) gives its values.
function ofBitmap(bitmap) {
  const { width, height } = bitmap;
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const rows = (start, end) => {
    canvas.width = width;
    canvas.height = end - start;
    context.drawImage(bitmap, 0, start, width, end - start, 0, 0, width, end - start);
    return context.getImageData(0, 0, width, end - start).data;
  };
  return { height, width, channels: 4, rows };
}

const ofValues = (values, height, width) => ({
  height,
  width,
  channels: 3,
  rows: (start, end) => values.subarray(start * width * 3, end * width * 3),
});

function valuesOf(image) {
  const { height, width, channels } = image;
  const values = new Float32Array(height * width * 3);
  for (const [start, end, pixels] of strips(image))
    for (let i = start * width, j = 0; i < end * width; i++, j += channels)
      for (let c = 0; c < 3; c++) values[3 * i + c] = pixels[j + c];
  return values;
}

function* strips({ height, width, rows }) {
  const step = Math.max(1, Math.floor(STRIP_PIXELS / width));
  for (let start = 0; start < height; start += step) {
    const end = Math.min(start + step, height);
    yield [start, end, rows(start, end)];
  }
}

const mapped = (image, f) => ofValues(valuesOf(image).map(f), image.height, image.width);
const pair = (size) => (Array.isArray(size) ? size : [size, size]);

// As Python and NumPy round: a half goes to the even number.
function rounded(value) {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 ? below + 1 : below;
}

const OPERATIONS = {
  decode: (image) => image,
  on_device: (image) => image,
  resize(image, { size, method }) {
    const [height, width] = pair(size);
    return resized(image, height, width, WEIGHTS[method]);
  },
  resize_small(image, { size, method }) {
    const factor = size / Math.min(image.height, image.width);
    const [height, width] = [image.height, image.width].map((side) => rounded(side * factor));
    return resized(image, height, width, WEIGHTS[method]);
  },
  central_crop(image, { size }) {
    const [height, width] = pair(size);
    const top = Math.floor((image.height - height) / 2);
    const left = Math.floor((image.width - width) / 2);
    if (Math.min(top, left) < 0)
      throw new Error(
        `Expected an image of at least ${width} × ${height} pixels. This one has ` +
          `${image.width} × ${image.height}. Choose a larger one.`,
      );
    const whole = valuesOf(image);
    const values = new Float32Array(height * width * 3);
    for (let y = 0; y < height; y++) {
      const start = 3 * ((top + y) * image.width + left);
      values.set(whole.subarray(start, start + 3 * width), 3 * y * width);
    }
    const [x, y, w, h] = image.region;
    const parts = [left / image.width, top / image.height, width / image.width, height / image.height];
    const region = [x + w * parts[0], y + h * parts[1], w * parts[2], h * parts[3]];
    return { ...ofValues(values, height, width), region };
  },
  value_range(image, { low, high, in_low, in_high }) {
    const scale = (high - low) / (in_high - in_low);
    return mapped(image, (value) => (value - in_low) * scale + low);
  },
  to_uint8: (image) => mapped(image, (value) => Math.min(255, Math.max(0, rounded(value)))),
};

// Weights of the old pixels in a new one, in each direction: the first old pixel, and the weights
// from there on.
const WEIGHTS = {
  // Half-pixel centers, without anti-aliasing.
  bilinear(position, scale, old) {
    const center = Math.min(old - 1, Math.max(0, (position + 0.5) * scale - 0.5));
    const first = Math.floor(center);
    return { first, weights: [1 - (center - first), center - first].slice(0, old - first) };
  },
  // The part of each old pixel in the new one.
  area(position, scale, old) {
    const start = position * scale;
    const first = Math.floor(start);
    const weights = [];
    for (let pixel = first; pixel < Math.min(start + scale, old); pixel++)
      weights.push(Math.max(0, Math.min(start + scale, pixel + 1) - Math.max(start, pixel)) / scale);
    return { first, weights };
  },
};

function resized(image, height, width, weightsOf) {
  const along = (size, old) => Array.from({ length: size }, (_, i) => weightsOf(i, old / size, old));
  return ofValues(
    byColumns(byRows(image, along(height, image.height)), height, image.width, along(width, image.width)),
    height,
    width,
  );
}

function byRows(image, rows) {
  const { width, channels } = image;
  const result = new Float32Array(rows.length * width * 3);
  for (const [start, end, pixels] of strips(image))
    rows.forEach(({ first, weights }, y) => {
      const [from, to] = [Math.max(first, start), Math.min(first + weights.length, end)];
      for (let row = from; row < to; row++) {
        const weight = weights[row - first];
        let i = (row - start) * width * channels;
        let j = y * width * 3;
        for (let x = 0; x < width; x++, i += channels, j += 3) {
          result[j] += weight * pixels[i];
          result[j + 1] += weight * pixels[i + 1];
          result[j + 2] += weight * pixels[i + 2];
        }
      }
    });
  return result;
}

function byColumns(values, height, old, columns) {
  const result = new Float32Array(height * columns.length * 3);
  for (let y = 0, j = 0; y < height; y++)
    for (const { first, weights } of columns)
      for (let c = 0; c < 3; c++, j++) {
        let sum = 0;
        for (let k = 0; k < weights.length; k++) sum += weights[k] * values[3 * (y * old + first + k) + c];
        result[j] = sum;
      }
  return result;
}
