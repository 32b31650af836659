// Keeps the page for when there is no network, where it came from a server.

import SETTINGS, { addressOf } from "page/assets";

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
