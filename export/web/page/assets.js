// The files that the page is made of: beside it, or inside of it where it is a single file.

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
export const addressOf = (name) =>
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
