import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.published import AUGREG, EXAMPLES, LISTED, find_checkpoint, url_of
from keras_vit.checkpoints.published_table import PERMISSIVE, RECOMMENDED, TABLE
from keras_vit.checkpoints.variable_names import POSITION_TABLE, weights_of

VIT = "https://storage.googleapis.com/vit_models"
BIT = "https://storage.googleapis.com/bit_models"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("imagenet21k/ViT-B_16", f"{VIT}/imagenet21k/ViT-B_16.npz"),
        ("imagenet21k/ViT-H_14", f"{VIT}/imagenet21k/ViT-H_14.npz"),
        ("imagenet21k/R50+ViT-B_16.npz", f"{VIT}/imagenet21k/R50+ViT-B_16.npz"),
        (
            "imagenet21k+imagenet2012/ViT-L_16-224",
            f"{VIT}/imagenet21k+imagenet2012/ViT-L_16-224.npz",
        ),
        ("sam/ViT-B_32", f"{VIT}/sam/ViT-B_32.npz"),
        ("gsam/ViT-S_16", f"{VIT}/gsam/ViT-S_16.npz"),
        (
            "augreg/R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
            f"{VIT}/augreg/R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0.npz",
        ),
        (
            "augreg/B_16",
            f"{VIT}/augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0.npz",
        ),
        (
            "augreg/R+ViT-Ti_16-imagenet2012",
            f"{VIT}/augreg/R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
            "--imagenet2012-steps_20k-lr_0.03-res_384.npz",
        ),
        (
            "augreg/ViT-B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
            f"{VIT}/augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0.npz",
        ),
        (
            "timm/deit3_base_patch16_384.fb_in22k_ft_in1k",
            "https://huggingface.co/timm/deit3_base_patch16_384.fb_in22k_ft_in1k/resolve/main/"
            "model.safetensors",
        ),
        (
            "big_vision/siglip2/siglip2_g-opt16_384",
            "https://storage.googleapis.com/big_vision/siglip2/siglip2_g-opt16_384.npz",
        ),
        (
            "big_vision/vit_s16_i1k_90ep.npz",
            "https://storage.googleapis.com/big_vision/vit_s16_i1k_90ep.npz",
        ),
        ("bit/BiT-M-R50x1", f"{BIT}/BiT-M-R50x1.npz"),
        ("bit/BiT-S-R152x4-ILSVRC2012", f"{BIT}/BiT-S-R152x4-ILSVRC2012.npz"),
        (
            "bit/vtab/BiT-M-R101x3-run2-caltech101",
            f"{BIT}/vtab/BiT-M-R101x3-run2-caltech101.npz",
        ),
    ],
)
def test_addresses(name, url):
    assert url_of(name) == url


def test_examples_are_names():
    assert len({url_of(name) for name in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize("model", RECOMMENDED)
def test_recommendations_follow_the_grammar(model):
    for name in (f"augreg/{model}", f"augreg/{model}-imagenet2012"):
        file = url_of(name).rpartition("/")[2].removesuffix(".npz")
        fields = AUGREG.fullmatch(file).groupdict()
        assert fields["model"] == model
        assert fields["dataset"] == "i21k"
        assert fields["adapt_resolution"] == ("384" if name.endswith("2012") else None)


def test_fields_of_a_fine_tuned_file():
    """500 steps are spelled 0k."""
    name = (
        "S_32-i1k-300ep-lr_0.001-aug_light0-wd_0.03-do_0.1-sd_0.1"
        "--oxford_iiit_pet-steps_0k-lr_0.003-res_224"
    )
    assert AUGREG.fullmatch(name).groupdict() == {
        "model": "S_32",
        "dataset": "i1k",
        "epochs": "300",
        "lr": "0.001",
        "aug": "light0",
        "wd": "0.03",
        "do": "0.1",
        "sd": "0.1",
        "adapt_dataset": "oxford_iiit_pet",
        "adapt_steps": "0",
        "adapt_lr": "0.003",
        "adapt_resolution": "224",
    }


@pytest.mark.parametrize(
    "name",
    [
        "ViT-B_16",
        "imagenet22k/ViT-B_16",
        "imagenet21k/ViT-B/16",
        "imagenet21k/../ViT-B_16",
        "augreg/B_17",
        "augreg/B_16-i21k",
        "bit/BiT-L-R50x1",
        "bit/BiT-M-R50x1?",
        "",
    ],
)
def test_unknown_names(name):
    with pytest.raises(ValueError, match="augreg/B_16"):
        url_of(name)


def test_listed_names_are_published():
    names = keras_vit.list_weights()
    assert set(names) == {*TABLE, *LISTED}
    assert len({url_of(name) for name in names}) == len(names)
    assert keras_vit.list_weights("*deit_base*") == [
        "timm/deit_base_patch16_224.fb_in1k",
        "timm/deit_base_patch16_384.fb_in1k",
    ]


def test_unknown_names_are_answered_with_close_ones():
    with pytest.raises(FileNotFoundError, match=r"timm/deit_base_patch16_224\.fb_in1k"):
        find_checkpoint("timm/deit_base_patch16_224")


def parameters_of_the_file(name, row):
    """What the arrays add up to: the model's, LayerScale, and no position of a class token."""
    head = 1000 if row.measure == "top-1" and not name.endswith(".mae") else None
    arguments = {"num_classes": head, "image_size": row.image_size, **row.arguments}
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.create_model(row.model, **arguments)
        shapes = {weight.name: weight.shape for weight in weights_of(model)}
    total = sum(int(np.prod(shape)) for shape in shapes.values())
    width, depth = model.arguments["hidden_size"], model.arguments["num_layers"]
    scaled = "deit3" in name or "dinov2" in name
    without_class = "deit3" in name or "reg4" in name
    assert not without_class or POSITION_TABLE in shapes
    return total + scaled * 2 * depth * width - without_class * width


@pytest.mark.parametrize("name", [n for n, row in TABLE.items() if row.parameters])
def test_parameters_of_the_table(name):
    assert TABLE[name].parameters == parameters_of_the_file(name, TABLE[name])


@pytest.mark.parametrize("name", TABLE)
def test_rows_are_complete(name):
    row = TABLE[name]
    class_name, arguments = keras_vit.variants.arguments_of(row.model)
    assert class_name == "VisionTransformer"
    assert (row.mean is None) == (row.std is None) == row.path.endswith(".npz")
    assert row.measure in ("top-1", "linear", "zero-shot")
    assert row.score is None or 70 < row.score < 100
    assert (row.license in PERMISSIVE) == (not name.endswith(".mae"))
    # A size in the file's name is the model's.
    sizes = {"tiny": 192, "small": 384, "medium": 512, "base": 768, "large": 1024, "huge": 1280}
    words = re.findall("|".join(sizes), name)
    assert [sizes[word] for word in words] in ([], [arguments["hidden_size"]])
    pixels = re.findall(r"_(224|256|384|512)(?:_|\.|$)", name)
    assert [int(size) for size in pixels] in ([], [row.image_size])
