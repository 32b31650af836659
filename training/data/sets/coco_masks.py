"""PNG masks, as `masks:FOLDER` reads them, of the objects in a COCO file of annotations."""

import contextlib
import io
import json
import pathlib
from typing import Any

import numpy as np

from keras_vit.photos.imagenet_classes import require_class_name
from keras_vit.photos.prepare_photos import upright_size

from ...errors import UsageError, first_line
from ...io.atomic import atomic_directory, write_text
from ...io.progress_bar import track
from .photo_sets import mask_path

_BACKGROUND, _MOST = "background", 255


def draw_masks(root: pathlib.Path, annotations: pathlib.Path) -> tuple[int, list[str]]:
    """Writes `masks/` and `labels.json` below `root`; returns the number of masks, and the names.

    Class 0 is "background", where no object is; then come the categories in the order of their
    ids. Where objects overlap, the smaller one is seen. Photos are in `images/`, as they are named
    in the annotations.

    Raises:
        UsageError: if pycocotools is not installed, the file is damaged, a photo is missing or of
            another size, there are more than 254 categories, or there are masks already.
    """
    try:
        from pycocotools.coco import COCO
    except ImportError as error:
        raise UsageError("Drawing masks of COCO's needs pycocotools: pip install it.") from error
    if (root / "masks").exists():
        raise UsageError(f"Expected a folder without masks/. {root} has one: rename or remove it.")
    try:
        # It prints how long it took.
        with contextlib.redirect_stdout(io.StringIO()):
            coco = COCO(str(annotations))
        categories = sorted(coco.cats.values(), key=lambda each: each["id"])
        names = [_BACKGROUND, *(each["name"] for each in categories)]
        if not coco.imgs or not 2 <= len(set(names)) == len(names) <= _MOST:
            raise ValueError("images, and 1 to 254 categories of different names")
    except (KeyError, TypeError, ValueError, AttributeError, OSError, AssertionError) as error:
        raise UsageError(
            f"Expected COCO's annotations of objects in {annotations}. It is damaged, or lacks "
            f"something: {first_line(error)}."
        ) from error
    for name in names:
        require_class_name(name, str(annotations))
    numbers = {each["id"]: number for number, each in enumerate(categories, 1)}
    with atomic_directory(root / "masks", "0") as folder:
        for image in track([*coco.imgs.values()], "drawing masks"):
            file = mask_path(image["file_name"], ".")
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            _drawn(coco, root / "images", image, numbers).save(folder / file)
        write_text(root / "labels.json", json.dumps(names, indent=2, ensure_ascii=False) + "\n")
    return len(coco.imgs), names


def _drawn(coco, images, image, numbers) -> Any:
    from PIL import Image

    photo, size = images / image["file_name"], (image["height"], image["width"])
    if not photo.is_file() or upright_size(photo) != size:
        raise UsageError(
            f"Expected a photo of {size[0]} x {size[1]}, as the annotations say, in {photo}. "
            + ("It has another size." if photo.is_file() else "There is none.")
        )
    mask, objects = np.zeros(size, np.uint8), coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
    for each in sorted(objects, key=lambda each: -each.get("area", 0)):
        try:
            mask[coco.annToMask(each) > 0] = numbers[each["category_id"]]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UsageError(
                f"Expected polygons or run lengths, and a known category, of the object "
                f"{each.get('id')} on {image['file_name']}. It is damaged: {error}."
            ) from error
    return Image.fromarray(mask)
