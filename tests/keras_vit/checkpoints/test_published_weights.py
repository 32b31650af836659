import functools
import re
import zlib

import pytest

import keras_vit
from keras_vit.checkpoints import find_checkpoint
from keras_vit.checkpoints import published_weights as listed
from keras_vit.checkpoints.torch_layouts import TIMM

BUCKET = "https://storage.googleapis.com"
VIT = f"{BUCKET}/vit_models"

# Published names and the files that they stand for.
B_16 = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
R_TI_16 = "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
R_TI_16 += "--imagenet2012-steps_20k-lr_0.03-res_384"
R26 = "augreg/R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
PET = "augreg/S_32-i1k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1--oxford_iiit_pet"
PET += "-steps_0k-lr_0.003-res_224"  # 500 steps are spelled 0k
ADAPTED = f"{R26}--imagenet2012-steps_20k-lr_0.01-res_384"
DEIT3 = "timm/deit3_base_patch16_384.fb_in22k_ft_in1k"
VTAB = "vtab/BiT-M-R101x3-run2-caltech101"
ADDRESSES = {
    "imagenet21k/R50+ViT-B_16.npz": f"{VIT}/imagenet21k/R50+ViT-B_16.npz",
    "imagenet21k+imagenet2012/ViT-L_16-224": f"{VIT}/imagenet21k+imagenet2012/ViT-L_16-224.npz",
    "gsam/ViT-S_16": f"{VIT}/gsam/ViT-S_16.npz",
    R26: f"{VIT}/{R26}.npz",
    PET: f"{VIT}/{PET}.npz",
    "augreg/B_16": f"{VIT}/augreg/{B_16}.npz",
    f"augreg/ViT-{B_16}": f"{VIT}/augreg/{B_16}.npz",
    "augreg/R+ViT-Ti_16-imagenet2012": f"{VIT}/augreg/{R_TI_16}.npz",
    DEIT3: f"https://huggingface.co/{DEIT3}/resolve/main/model.safetensors",
    "big_vision/siglip2/siglip2_b32_256": f"{BUCKET}/big_vision/siglip2/siglip2_b32_256.npz",
    "bit/BiT-S-R152x4-ILSVRC2012": f"{BUCKET}/bit_models/BiT-S-R152x4-ILSVRC2012.npz",
    f"bit/{VTAB}": f"{BUCKET}/bit_models/{VTAB}.npz",
}
UNKNOWN = ["ViT-B_16", "imagenet21k/../ViT-B_16", "augreg/B_17", "bit/BiT-M-R50x1?", ""]
OF_OTHER_CLASSES = [R26, ADAPTED.replace("imagenet2012", "cifar100"), "imagenet21k/ViT-B_16", "x"]
OF_OTHER_CLASSES += [R26.replace("i21k", "i1k") + "--cifar10-steps_2k-lr_0.01-res_224"]
OF_OTHER_CLASSES += ["timm/vit_small_patch14_dinov2.lvd142m", "bit/BiT-M-R50x1"]


def test_addresses():
    assert {name: listed.url_of(name) for name in ADDRESSES} == ADDRESSES


@pytest.mark.parametrize("name", [*UNKNOWN, "bit/BiT-L-R50x1"])
def test_unknown_names(name):
    assert listed.url_of(name) is None
    if name:  # "" is the current folder
        with pytest.raises(FileNotFoundError, match="such as augreg/B_16"):
            find_checkpoint(name)


def test_listed_names_are_published():
    names = keras_vit.list_weights()
    assert set(names) == {*listed.TABLE, *listed.LISTED}
    assert len({listed.url_of(name) for name in names}) == len(names)
    found = [
        f"timm/deit_base_{kind}patch16_{size}.fb_in1k"
        for kind in ("distilled_", "")
        for size in (224, 384)
    ]
    assert keras_vit.list_weights("*deit_base*") == found


@pytest.mark.parametrize("name", ["timm/deit_base_patch16_224", "TIMM/DEIT_BASE_PATCH16_224"])
def test_unknown_names_are_answered_with_close_ones(name):
    with pytest.raises(FileNotFoundError, match=r"Did you mean .*timm/deit_base_patch16_224\.fb"):
        find_checkpoint(name)


@pytest.mark.parametrize("name", [n for n, row in listed.TABLE.items() if row.parameters])
def test_parameters_of_the_table(name):
    """The sum of the arrays: the model's, LayerScale, and no position of a class token."""
    row = listed.TABLE[name]
    head = 1000 if row.measure == "top-1" and not name.endswith(".mae") else None
    arguments = {"num_classes": head, "image_size": row.image_size, **row.arguments}
    size = keras_vit.variants.arguments_of(row.model)[1] | row.arguments
    width, depth = size["hidden_size"], size["num_layers"]
    scaled = "deit3" in name or "dinov2" in name
    without_class = "deit3" in name or "reg4" in name
    total = keras_vit.costs(row.model, **arguments).parameters
    assert row.parameters == total + scaled * 2 * depth * width - without_class * width


def test_scores_and_sizes_are_those_that_were_compared_with_their_sources():
    rows = {name: (row.image_size, row.measure, row.score) for name, row in listed.TABLE.items()}
    assert zlib.crc32(repr(sorted(rows.items())).encode()) == 486161541


@pytest.mark.parametrize("name", listed.TABLE)
def test_rows_are_complete(name):
    row = listed.TABLE[name]
    class_name, arguments = keras_vit.variants.arguments_of(row.model)
    assert class_name == "VisionTransformer"
    assert (row.mean is None) == (row.std is None) == row.path.endswith(".npz")
    assert (row.license in listed.PERMISSIVE) == (not name.endswith(".mae") and "v3" not in name)
    # A size in the file's name is the model's.
    sizes = {"tiny": 192, "small": 384, "medium": 512, "base": 768, "large": 1024, "huge": 1280}
    words = re.findall("|".join(sizes), name)
    assert [sizes[word] for word in words] in ([], [arguments["hidden_size"]])
    pixels = re.findall(r"_(224|256|384|512)(?:_|\.|$)", name)
    assert [int(size) for size in pixels] in ([], [row.image_size])


@pytest.mark.rows(
    ("imagenet21k+imagenet2012/ViT-B_16", "ViT-B/16", 384),
    ("imagenet21k+imagenet2012/ViT-B_16-224", "ViT-B/16", 224),
    (DEIT3, "ViT-B/16", 384),
    ("gsam/ViT-S_16", "ViT-S/16", 224),
    ("augreg/R_Ti_16-imagenet2012", "R+ViT-Ti/16", 384),
    (ADAPTED, "R26+ViT-S/32", 384),
    (R26.replace("i21k", "i1k"), "R26+ViT-S/32", 224),
    ("bit/BiT-S-R50x1", "BiT-R50x1", 224),
    ("bit/BiT-S-R50x1-ILSVRC2012", "BiT-R50x1", 480),
    *((name, None, None) for name in OF_OTHER_CLASSES),
)
def test_names_of_classifiers_of_imagenet(name, model, image_size):
    row = listed.published_classifier(name)
    assert (getattr(row, "model", None), getattr(row, "image_size", None)) == (model, image_size)
    assert model is None or keras_vit.variants.arguments_of(model)


def test_a_published_head_brings_its_names(tmp_path, monkeypatch):
    small = {"image_size": 32, "num_layers": 1}
    build = functools.partial(keras_vit.create_model, "ViT-Ti/32", num_classes=1000, **small)
    whole = build()
    keras_vit.save_checkpoint(whole, tmp_path / "whole.npz")
    find = "keras_vit.checkpoints.load.find_checkpoint"
    monkeypatch.setattr(find, lambda name: tmp_path / "whole.npz")
    published = "augreg/Ti_16-imagenet2012"
    model = keras_vit.create_model("ViT-Ti/32", weights=published, **small)
    assert model.class_names[1] == "goldfish"
    other = keras_vit.create_model("ViT-Ti/32", num_classes=7, weights=published, **small)
    assert other.class_names is None
    for skip in (["head"], ["head/kernel", "head/bias"]):
        keras_vit.load_checkpoint(whole, published, skip)
        assert whole.class_names is None
    keras_vit.load_checkpoint(whole, published)
    assert whole.class_names == model.class_names
    # As timm's file on the Hub, beside which no configuration lies.
    keras_vit.save_checkpoint(whole, tmp_path / "whole.safetensors", TIMM)
    monkeypatch.setattr(find, lambda name: tmp_path / "whole.safetensors")
    keras_vit.load_checkpoint(other := build(gelu="erf"), "timm/deit_tiny_patch16_224.fb_in1k")
    assert other.class_names == model.class_names
