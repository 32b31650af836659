// The files that the page is made of: beside it, or inside of it where it is a single file; and a copy
// for when there is no network.

const SETTINGS = JSON.parse(document.getElementById("settings").textContent);
export default SETTINGS;

export const has = (name) => name in SETTINGS.assets;

// Bytes that are transferred for an asset.
export const sizeOf = (name) => SETTINGS.assets[name].bytes;

// Returns the bytes of an asset, and calls `onBytes` with the number of each piece that arrives.
export async function load(name, onBytes = () => {}) {
  const inside = document.getElementById(`asset:${name}`);
  const stream = inside ? new Blob([decoded(inside.textContent)]).stream() : await fetched(name);
  const counted = stream.pipeThrough(
    new TransformStream({
      transform(piece, controller) {
        onBytes(piece.byteLength);
        controller.enqueue(piece);
      },
    }),
  );
  const bytes = await bytesOf(counted);
  // Some servers unpack .gz themselves: the first bytes say whether it is still to be done.
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  return bytesOf(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}

const bytesOf = async (stream) => new Uint8Array(await new Response(stream).arrayBuffer());

export const loadText = async (name) => new TextDecoder().decode(await load(name));

// Where an asset is fetched from; the version keeps apart what was exported at different times.
const addressOf = (name) =>
  new URL(`assets/${name}${SETTINGS.assets[name].suffix}?${SETTINGS.version}`, document.baseURI);

async function fetched(name) {
  const response = await fetch(addressOf(name));
  if (!response.ok) throw new Error(`${name} cannot be loaded: the server answers ${response.status}.`);
  return response.body;
}

function decoded(base64) {
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// Keeps the page for when there is no network, where it came from a server.
export async function keepOffline() {
  if (!navigator.serviceWorker || location.protocol === "file:") return;
  try {
    await navigator.serviceWorker.register("service-worker.js");
    const known = await caches.keys();
    await Promise.all(known.filter((name) => name !== SETTINGS.version).map((name) => caches.delete(name)));
    const cache = await caches.open(SETTINGS.version);
    // What this device fetched; the builds of LiteRT.js for others are left out.
    const used = Object.keys(SETTINGS.assets).map((name) => addressOf(name).href);
    const fetched = new Set(performance.getEntriesByType("resource").map(({ name }) => name));
    await cache.addAll([...SETTINGS.files, ...used.filter((address) => fetched.has(address))]);
  } catch (error) {
    console.warn("The page is not kept for use without a network:", error);
  }
}
