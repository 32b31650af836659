// Photographs: a phone's own camera where there is one, or else this computer's in a dialog.

const dialog = document.getElementById("camera");
const video = dialog.querySelector("video");

export const onPhone = () => matchMedia("(pointer: coarse)").matches;
export const there = () => onPhone() || Boolean(navigator.mediaDevices?.getUserMedia);

// Returns a photo as a file, or null if the dialog was closed.
export async function takePhoto() {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    throw new Error(
      `The camera cannot be used (${error.name}). Allow it for this page in the browser, or choose an image.`,
    );
  }
  try {
    video.srcObject = stream;
    await video.play();
    dialog.showModal();
    return await new Promise((resolve) => {
      dialog.addEventListener("close", () => resolve(null), { once: true });
      document.getElementById("close-camera").onclick = () => dialog.close();
      document.getElementById("shoot").onclick = () => resolve(frame());
    });
  } finally {
    dialog.close();
    for (const track of stream.getTracks()) track.stop();
    video.srcObject = null;
  }
}

function frame() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  canvas.getContext("2d").drawImage(video, 0, 0);
  return new Promise((resolve) =>
    canvas.toBlob((blob) => resolve(new File([blob], "photo.png", { type: blob.type }))),
  );
}
