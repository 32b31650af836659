// LiteRT.js: a model, compiled for a processor of this device.

import { loadAndCompile, loadLiteRt, supportsFeature, Tensor, unloadLiteRt } from "@litertjs/core";
import SETTINGS, { has, load, sizeOf } from "page/assets";

const PLAIN = "litert_wasm_internal";
const COMPATIBLE = "litert_wasm_compat_internal"; // for browsers without relaxed SIMD, such as Safari
const THREADED = "litert_wasm_threaded_internal";
const MODEL = "model.tflite";
const MOST_THREADS = 4;

export const threads = Math.min(MOST_THREADS, navigator.hardwareConcurrency || 1);

let build = null; // of LiteRT.js that is loaded
let bytes = null; // of the model
let model = null;

// Returns, for each backend, why it is not there, or null where it is.
export async function backends() {
  const relaxed = await supportsFeature("relaxedSimd");
  return { wasm: null, threads: whyNoThreads(relaxed), webgpu: await whyNoGpu() };
}

function whyNoThreads(relaxed) {
  if (!has(`${THREADED}.wasm`)) return "A page in a single file has no threads.";
  if (threads < 2) return "This device has one processor core.";
  if (!relaxed) return "This browser has no relaxed SIMD, which threads need.";
  if (self.crossOriginIsolated) return null;
  return navigator.serviceWorker
    ? "Threads are there after this page is loaded again."
    : "Threads need https, or localhost.";
}

async function whyNoGpu() {
  if (SETTINGS.without_gpu) return SETTINGS.without_gpu;
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  return adapter ? null : "This browser gives no access to a GPU (WebGPU).";
}

// Compiles the model for a backend. `onProgress` is called with (bytes that arrived, all bytes).
export async function open(backend, onProgress = () => {}, precision = "fp32") {
  const wanted = await buildFor(backend);
  const files = [`${wanted}.wasm`, `${wanted}.js`].filter(() => build !== wanted);
  if (!bytes) files.push(MODEL);
  const total = files.reduce((sum, name) => sum + sizeOf(name), 0);
  let arrived = 0;
  const count = (more) => onProgress((arrived += more), total);
  const [weights] = await Promise.all([
    bytes || load(MODEL, count),
    build === wanted || loadBuild(wanted, count),
  ]);
  bytes = weights;
  model?.delete();
  model = null; // stays so if the next one does not compile
  model = await loadAndCompile(bytes, {
    accelerator: backend === "webgpu" ? "webgpu" : "wasm",
    gpuOptions: { precision },
    cpuOptions: { numThreads: backend === "threads" ? threads : 1 },
  });
}

async function buildFor(backend) {
  if (backend === "threads") return THREADED;
  const relaxed = await supportsFeature("relaxedSimd");
  return relaxed && has(`${PLAIN}.wasm`) ? PLAIN : COMPATIBLE;
}

async function loadBuild(name, count) {
  const [wasm, script] = await Promise.all([
    load(`${name}.wasm`, count),
    load(`${name}.js`, count),
  ]);
  if (build) {
    model?.delete();
    model = null;
    unloadLiteRt();
  }
  build = null;
  const source = new Blob([script], { type: "text/javascript" });
  const address = URL.createObjectURL(source);
  self.Module = { wasmBinary: wasm, mainScriptUrlOrBlob: source };
  try {
    await loadLiteRt(`${address}#.js`); // its end tells LiteRT.js that it is no folder
  } finally {
    URL.revokeObjectURL(address);
  }
  build = name;
}

// Whether every operation runs on the accelerator that was asked for.
export const isFullyAccelerated = () => model.isFullyAccelerated;

// Returns the values of a signature's output, and the milliseconds that they took.
export async function run(image, signature = "serving_default") {
  const [height, width] = SETTINGS.image_size;
  const input = new Tensor(image, [1, height, width, 3]);
  const start = performance.now();
  const outputs = Object.values(await model.run(signature, { image: input }));
  const values = Float32Array.from(await outputs[0].data());
  const milliseconds = performance.now() - start;
  for (const tensor of [input, ...outputs]) tensor.delete();
  return { values, milliseconds };
}
