"""Which published names classify ImageNet, with which model and image size."""

import pytest

import keras_vit
from keras_vit.checkpoints import load
from keras_vit.checkpoints.published_classifiers import published_classifier

AUGREG = "augreg/R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
ADAPTED = f"{AUGREG}--imagenet2012-steps_20k-lr_0.01-res_384"


@pytest.mark.parametrize(
    "name, model, image_size",
    [
        ("imagenet21k+imagenet2012/ViT-B_16", "ViT-B/16", 384),
        ("imagenet21k+imagenet2012/ViT-B_16-224", "ViT-B/16", 224),
        ("imagenet21k+imagenet2012/R50+ViT-B_16", "R50+ViT-B/16", 384),
        ("sam/ViT-B_32", "ViT-B/32", 224),
        ("timm/deit3_base_patch16_384.fb_in22k_ft_in1k", "ViT-B/16", 384),
        ("gsam/ViT-S_16", "ViT-S/16", 224),
        ("augreg/B_16-imagenet2012", "ViT-B/16", 384),
        ("augreg/R_Ti_16-imagenet2012", "R+ViT-Ti/16", 384),
        (ADAPTED, "R26+ViT-S/32", 384),
        (AUGREG.replace("i21k", "i1k"), "R26+ViT-S/32", 224),
        ("bit/BiT-S-R50x1", "BiT-R50x1", 224),
        ("bit/BiT-S-R50x1-ILSVRC2012", "BiT-R50x1", 480),
        ("bit/BiT-M-R101x3-ILSVRC2012", "BiT-R101x3", 480),
    ],
)
def test_names_of_classifiers_of_imagenet(name, model, image_size):
    assert published_classifier(name)[:2] == (model, image_size)
    keras_vit.variants.arguments_of(model)


@pytest.mark.parametrize(
    "name",
    [
        "imagenet21k/ViT-B_16",
        "timm/vit_small_patch14_dinov2.lvd142m",
        "augreg/B_16",
        AUGREG,
        ADAPTED.replace("imagenet2012", "cifar100"),
        AUGREG.replace("i21k", "i1k") + "--cifar10-steps_2k-lr_0.01-res_224",
        "bit/BiT-M-R50x1",
        "ViT-B_16.npz",
        "nothing",
    ],
)
def test_other_names_have_other_classes(name):
    assert published_classifier(name) is None


def test_a_published_head_brings_its_names(tmp_path, monkeypatch):
    whole = keras_vit.create_model("ViT-Ti/32", num_classes=1000, image_size=32)
    keras_vit.save_checkpoint(whole, tmp_path / "whole.npz")
    monkeypatch.setattr(load, "find_checkpoint", lambda name: tmp_path / "whole.npz")
    published = "augreg/Ti_16-imagenet2012"
    arguments = {"image_size": 32, "weights": published}
    model = keras_vit.create_model("ViT-Ti/32", **arguments)
    assert model.class_names[1] == "goldfish"
    assert keras_vit.create_model("ViT-Ti/32", num_classes=7, **arguments).class_names is None
    keras_vit.load_checkpoint(whole, published, skip=["head"])
    assert whole.class_names is None
    keras_vit.load_checkpoint(whole, published, skip=["head/kernel", "head/bias"])
    assert whole.class_names is None
    keras_vit.load_checkpoint(whole, published)
    assert whole.class_names == model.class_names
