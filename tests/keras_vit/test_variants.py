import functools
import json
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import variants

# With a head of 1000 classes, for images of 224 pixels.
TABLE = """
ViT-Ti/16          5_717_416   ViT-Ti/32          6_131_560   ViT-S/16          22_050_664
ViT-S/32          22_878_952   ViT-M/16          38_837_736   ViT-B/8           86_576_872
ViT-B/16          86_567_656   ViT-B/32          88_224_232   ViT-L/16         304_326_632
ViT-L/32         306_535_400   ViT-So400m/14    413_597_656   ViT-So400m/16    413_735_896
ViT-H/14         632_045_800   ViT-g/14       1_012_611_432   ViT-g-opt/16   1_136_286_184
R+ViT-Ti/16        6_337_704   R26+ViT-S/32      36_431_912   R26+ViT-B/32     101_383_976
R50+ViT-B/16      98_659_112   R50+ViT-B/32     110_945_832   R50+ViT-L/16     316_483_624
R50+ViT-L/32     328_994_856   BiT-R50x1         25_549_352   BiT-R50x2         97_988_712
BiT-R50x3        217_319_080   BiT-R101x1        44_541_480   BiT-R101x3       387_934_888
BiT-R152x1        60_185_128   BiT-R152x2       236_335_208   BiT-R152x4       936_533_224
BiT-R200x3       568_633_000   Axial-ViT-B/16   171_620_584   Axial-ViT-B/32   173_277_160
ViT-S+/16         29_146_984   ViT-H+/16        842_078_440   ViT-7B/16      6_721_082_344
"""
COUNTS = {name: int(count) for name, count in re.findall(r"(\S+) +(\S+)", TABLE)}

# At 384 pixels only the position embeddings grow.
COUNTS_384 = {"ViT-Ti/16": 5_790_376, "ViT-B/16": 86_859_496, "ViT-L/32": 306_632_680}
VIT, BIT = (functools.partial(keras_vit.create_model, n) for n in ("ViT-B/16", "BiT-R50x1"))


def test_every_name_has_a_count_which_costs_know():
    assert sorted(COUNTS) == sorted(variants.NAMES)  # AxialResNet's are with its other tests
    for size, counts in ((224, COUNTS), (384, COUNTS_384)):
        found = {name: keras_vit.costs(name, image_size=size).parameters for name in counts}
        assert found == counts


# Building the deep ones takes seconds; `costs` reads the same arguments, and `test_cost.py`
# compares its closed forms with models of every option.
BUILT = ("ViT-Ti/16", "R26+ViT-S/32", "BiT-R50x1", "Axial-ViT-B/32")
# Figure 4's ViT-b, which halves all hidden dimensions, and appendix D.2's base of the ablation.
HALF_OF_BASE = {"hidden_size": 384, "mlp_dim": 1536, "num_heads": 6}
SHAPE_ABLATION = {"num_layers": 8, "hidden_size": 1024, "mlp_dim": 2048, "num_heads": 16}


@pytest.mark.rows(*BUILT, long=[name for name in variants.NAMES if name not in BUILT])
def test_parameter_count(name):
    with keras.StatelessScope(initialize_variables=False):  # never allocated
        assert keras_vit.create_model(name).count_params() == COUNTS[name]


@pytest.mark.rows(
    ("ViT-B/16", {}, 85_798_656),
    ("R50+ViT-B/16", {}, 97_890_112),
    ("BiT-R50x1", {}, 23_500_352),
    ("ViT-B/32", HALF_OF_BASE, 22_493_952),
    ("ViT-L/32", SHAPE_ABLATION, 70_400_000),
    # As timm 1.0.31 counts its own models.
    ("vit_base_patch16_siglip_224", {}, 92_884_224),
    ("vit_base_patch16_siglip_gap_224", {}, 85_797_120),
    # As DINOv3's page counts them, in millions: 21, 29, 86, 300, 840, 6,716.
    ("vit_small_patch16_dinov3", {}, 21_591_552),
    ("vit_small_plus_patch16_dinov3_qkvb", {}, 28_687_872),
    long=[
        ("vit_base_patch16_dinov3", {}, 85_650_432),
        ("vit_large_patch16_dinov3", {}, 303_104_000),
        ("vit_huge_plus_patch16_dinov3", {}, 840_550_400),
        ("vit_7b_patch16_dinov3", {}, 6_716_194_816),
        # Of 27 and 40 blocks.
        ("vit_so400m_patch14_siglip_224", {}, 427_680_704),
        ("vit_so400m_patch16_siglip_256", {}, 427_888_064),
        ("vit_giantopt_patch16_siglip_384", {}, 1_163_659_776),
    ],
)
def test_parameter_count_without_head(name, arguments, expected):
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.create_model(name, num_classes=None, **arguments)
    assert model.count_params() == expected
    if "/" in name:
        assert keras_vit.costs(name, num_classes=None, **arguments).parameters == expected


@pytest.mark.rows(
    *((name, "") for name in ("ViT-B/0", "R50+ViT-S/16", "BiT-R50x9", "", None, 16)),
    ("ViT-B16", r"^Did you mean ViT-B/16\? "),
    ("BIT-R50X1", r"^Did you mean BiT-R50x1\? "),
    ("vit_base_patch16_225", r"^Did you mean vit_base_patch16_224\? "),
)
def test_unknown_name(name, hint):
    with pytest.raises(ValueError, match=f"{hint}Expected a model's name"):
        keras_vit.create_model(name)


def test_names_are_listed_and_timms_have_its_size_and_gelu():
    assert keras_vit.list_models("ViT-B/*") == ["ViT-B/8", "ViT-B/16", "ViT-B/32"]
    assert "AxialResNet-S" in keras_vit.list_models()
    assert keras_vit.list_models("*reg4*")[0] == "vit_small_patch14_reg4_dinov2"
    assert keras_vit.list_models("resnet*") == []
    for given, size in (({"num_classes": None}, 384), ({"image_size": 64}, 64)):
        with keras.StatelessScope(initialize_variables=False):
            model = keras_vit.create_model("deit_base_patch16_384", num_layers=1, **given)
        assert (model.arguments["image_size"], model.arguments["gelu"]) == (size, "erf")


@pytest.mark.rows(
    (VIT, "include_top", "instead of `include_top` use `num_classes=None"),
    (VIT, "pretrained", "instead of `pretrained` use `weights="),
    (VIT, "in_chans", "instead of `in_chans` use `in_channels"),
    (VIT, "num_head", r"^Did you mean num_heads\? .*'num_head'"),
    (BIT, "layers", "Did you mean num_layers.*'layers'"),
    (keras_vit.VisionTransformer, "num_clases", r"^Did you mean num_classes\? .*'num_clases'"),
    (keras_vit.VisionTransformer, "embed_dim", "instead of `embed_dim` use `hidden_size`"),
)
def test_other_arguments_are_named_with_ours(make, argument, message):
    with pytest.raises(TypeError, match=message):
        make(**{argument: True})


@pytest.mark.rows(
    ("ViT-Ti/16", {"num_layers": np.int32(1), "image_size": np.int64(32)}),
    ("BiT-R50x1", {"num_layers": np.array([1]), "image_size": np.array([32, 32])}),
    ("AxialResNet-S", {"num_layers": np.array([1]), "image_size": 32}),
)
def test_integers_of_numpy(name, arguments):
    model = keras_vit.create_model(name, num_classes=np.int64(3), **arguments)
    assert model.output.shape == (None, 3)
    config = json.loads(json.dumps(model.get_config()))
    assert type(model).from_config(config).get_config() == model.get_config()
