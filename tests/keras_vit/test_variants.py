"""Parameter counts of every named model."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import variants

# With a head of 1000 classes, for images of 224 pixels.
COUNTS = {
    "ViT-Ti/16": 5_717_416,
    "ViT-Ti/32": 6_131_560,
    "ViT-S/16": 22_050_664,
    "ViT-S/32": 22_878_952,
    "ViT-M/16": 38_837_736,
    "ViT-B/8": 86_576_872,
    "ViT-B/16": 86_567_656,
    "ViT-B/32": 88_224_232,
    "ViT-L/16": 304_326_632,
    "ViT-L/32": 306_535_400,
    "ViT-So400m/14": 413_597_656,
    "ViT-So400m/16": 413_735_896,
    "ViT-H/14": 632_045_800,
    "ViT-g/14": 1_012_611_432,
    "ViT-g-opt/16": 1_136_286_184,
    "R+ViT-Ti/16": 6_337_704,
    "R26+ViT-S/32": 36_431_912,
    "R26+ViT-B/32": 101_383_976,
    "R50+ViT-B/16": 98_659_112,
    "R50+ViT-B/32": 110_945_832,
    "R50+ViT-L/16": 316_483_624,
    "R50+ViT-L/32": 328_994_856,
    "BiT-R50x1": 25_549_352,
    "BiT-R50x2": 97_988_712,
    "BiT-R50x3": 217_319_080,
    "BiT-R101x1": 44_541_480,
    "BiT-R101x3": 387_934_888,
    "BiT-R152x1": 60_185_128,
    "BiT-R152x2": 236_335_208,
    "BiT-R152x4": 936_533_224,
    "BiT-R200x3": 568_633_000,
    "Axial-ViT-B/16": 171_620_584,
    "Axial-ViT-B/32": 173_277_160,
}

# At 384 pixels only the position embeddings grow.
COUNTS_384 = {"ViT-Ti/16": 5_790_376, "ViT-B/16": 86_859_496, "ViT-L/32": 306_632_680}


def parameters_of(name, **arguments):
    """Returns how many numbers a model has, whose weights are never allocated."""
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.create_model(name, **arguments)
        return sum(int(np.prod(weight.shape)) for weight in model.weights)


def test_every_name_has_a_count_which_costs_know():
    assert sorted(COUNTS) == sorted(variants.NAMES)  # AxialResNet's are with its other tests
    for size, counts in ((224, COUNTS), (384, COUNTS_384)):
        found = {name: keras_vit.costs(name, image_size=size).parameters for name in counts}
        assert found == counts


# Building the deep ones takes seconds; `costs` reads the same arguments, and `test_cost.py`
# compares its closed forms with models of every option.
BUILT = ("ViT-Ti/16", "R26+ViT-S/32", "BiT-R50x1", "Axial-ViT-B/32")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in BUILT else pytest.mark.long) for n in variants.NAMES],
)
def test_parameter_count(name):
    assert parameters_of(name) == COUNTS[name]


# Figure 4's ViT-b, which halves all hidden dimensions, and appendix D.2's base of the ablation.
HALF_OF_BASE = {"hidden_size": 384, "mlp_dim": 1536, "num_heads": 6}
SHAPE_ABLATION = {"num_layers": 8, "hidden_size": 1024, "mlp_dim": 2048, "num_heads": 16}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("ViT-B/16", {}, 85_798_656),
        ("R50+ViT-B/16", {}, 97_890_112),
        ("BiT-R50x1", {}, 23_500_352),
        ("ViT-B/32", HALF_OF_BASE, 22_493_952),
        ("ViT-L/32", SHAPE_ABLATION, 70_400_000),
        # As timm 1.0.31 counts its own models.
        ("vit_base_patch16_siglip_224", {}, 92_884_224),
        ("vit_base_patch16_siglip_gap_224", {}, 85_797_120),
        # Of 27 and 40 blocks.
        *(
            pytest.param(name, {}, expected, marks=pytest.mark.long)
            for name, expected in (
                ("vit_so400m_patch14_siglip_224", 427_680_704),
                ("vit_so400m_patch16_siglip_256", 427_888_064),
                ("vit_giantopt_patch16_siglip_384", 1_163_659_776),
            )
        ),
    ],
)
def test_parameter_count_without_head(name, arguments, expected):
    assert parameters_of(name, num_classes=None, **arguments) == expected
    if "/" in name:
        assert keras_vit.costs(name, num_classes=None, **arguments).parameters == expected


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        *((name, "") for name in ("ViT-B/0", "R50+ViT-S/16", "BiT-R50x9", "", None, 16)),
        ("ViT-B16", r"^Did you mean ViT-B/16\? "),
        ("BIT-R50X1", r"^Did you mean BiT-R50x1\? "),
        ("vit_base_patch16_225", r"^Did you mean vit_base_patch16_224\? "),
    ],
)
def test_unknown_name(name, hint):
    with pytest.raises(ValueError, match=f"{hint}Expected a model's name"):
        keras_vit.create_model(name)


def test_a_timm_name_has_its_size_and_gelu():
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.create_model("deit_base_patch16_384", num_classes=None, num_layers=1)
        other = keras_vit.create_model("deit_base_patch16_384", image_size=64, num_layers=1)
    assert model.arguments["image_size"] == 384
    assert model.arguments["gelu"] == "erf"
    assert other.arguments["image_size"] == 64


def test_list_models():
    assert keras_vit.list_models("ViT-B/*") == ["ViT-B/8", "ViT-B/16", "ViT-B/32"]
    assert "AxialResNet-S" in keras_vit.list_models()
    assert keras_vit.list_models("*reg4*")[0] == "vit_small_patch14_reg4_dinov2"
    assert keras_vit.list_models("resnet*") == []


@pytest.mark.parametrize(
    ("make", "argument", "message"),
    [
        ("ViT-B/16", "include_top", "instead of `include_top` use `num_classes=None"),
        ("ViT-B/16", "pretrained", "instead of `pretrained` use `weights="),
        ("ViT-B/16", "in_chans", "instead of `in_chans` use `in_channels"),
        ("ViT-B/16", "num_head", r"^Did you mean num_heads\? .*'num_head'"),
        ("BiT-R50x1", "layers", "Did you mean num_layers.*'layers'"),
        (None, "num_clases", r"^Did you mean num_classes\? .*'num_clases'"),
        (None, "embed_dim", "instead of `embed_dim` use `hidden_size`"),
    ],
)
def test_other_arguments_are_named_with_ours(make, argument, message):
    with pytest.raises(TypeError, match=message):
        if make:
            keras_vit.create_model(make, **{argument: True})
        keras_vit.VisionTransformer(**{argument: 3})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ViT-Ti/16", {"num_layers": np.int32(1), "image_size": np.int64(32)}),
        ("BiT-R50x1", {"num_layers": np.array([1]), "image_size": np.array([32, 32])}),
        ("AxialResNet-S", {"num_layers": np.array([1]), "image_size": 32}),
    ],
)
def test_integers_of_numpy(name, arguments):
    model = keras_vit.create_model(name, num_classes=np.int64(3), **arguments)
    assert model.output.shape == (None, 3)
    config = json.loads(json.dumps(model.get_config()))
    assert type(model).from_config(config).get_config() == model.get_config()
