"""Photos of every odd kind and the pixels that each reader of photos must see in them."""

import io

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
PHOTO = Image.fromarray(PIXELS)
GRAY = np.asarray(PHOTO.convert("L"))[..., None].repeat(3, axis=-1)
PALETTE = PHOTO.quantize(8)


def encode(image, file_format, **options):
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def oriented(orientation, file_format="JPEG", image=PHOTO, **options):
    exif = Image.Exif()
    exif[0x010E] = "a description before the orientation"
    exif[0x0112] = orientation
    exif[0x0131] = "software after it"
    return encode(image, file_format, exif=exif, **options)


INKS = encode(PHOTO.convert("CMYK"), "JPEG", quality=100)
GRAY_JPEG = encode(PHOTO.convert("L"), "JPEG")
BITS = Image.fromarray(GRAY[..., 0].astype(np.uint16) * 256 + 255)
WIDE = tf.io.encode_png(PIXELS.astype(np.uint16) * 256 + 255).numpy()
ALPHA = Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]]))
COLORS = np.asarray(PALETTE.convert("RGB"))
MIRRORED = PHOTO.transpose(Image.Transpose.FLIP_LEFT_RIGHT).quantize(8)
CASES = {  # The bytes of photos and their pixels.
    "gray": (encode(PHOTO.convert("L"), "PNG"), GRAY),
    "gray JPEG": (GRAY_JPEG, np.asarray(Image.open(io.BytesIO(GRAY_JPEG)).convert("RGB"))),
    "gray with alpha": (encode(PHOTO.convert("LA"), "PNG"), GRAY),
    "alpha": (encode(ALPHA, "PNG"), PIXELS),
    "palette": (encode(PALETTE, "PNG"), COLORS),
    "palette with transparency": (encode(PALETTE, "PNG", transparency=3), COLORS),
    "16 bits": (encode(BITS, "PNG"), GRAY),
    "16 bits, color": (WIDE, PIXELS),
    "16 bits, TIFF": (encode(BITS, "TIFF"), GRAY),
    "CMYK": (INKS, np.asarray(Image.open(io.BytesIO(INKS)).convert("RGB"))),
    "GIF": (encode(PALETTE, "GIF"), COLORS),
    "animated GIF": (encode(PALETTE, "GIF", save_all=True, append_images=[MIRRORED]), COLORS),
    "BMP": (encode(PHOTO, "BMP"), PIXELS),
    "BMP, gray": (encode(PHOTO.convert("L"), "BMP"), GRAY),
    "BMP with palette": (encode(PALETTE, "BMP"), COLORS),
    "PNG with a color profile": (
        oriented(6, "PNG", icc_profile=np.random.default_rng(0).bytes(4000)),
        np.rot90(PIXELS, -1),
    ),
}
TURNED = [(kind, number) for kind in ("JPEG", "PNG", "TIFF", "WEBP") for number in range(1, 9)]
for kind, number in TURNED:
    photo = oriented(number, kind, **({"lossless": True} if kind == "WEBP" else {}))
    seen = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(photo))))
    assert seen.shape == ((7, 5, 3) if number > 4 else (5, 7, 3))
    CASES[f"{kind} {number}"] = photo, seen
