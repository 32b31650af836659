import pytest

from keras_vit.checkpoints.published import AUGREG, EXAMPLES, RECOMMENDED, url_of

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
