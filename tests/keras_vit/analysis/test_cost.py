import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training import paper_tables
from tests.keras_vit.small import of_tensorflow
from tests.tiny_vit import tiny_vit

MACS = {("ViT-B/16", 224): 17_563_828_224, ("ViT-B/32", 224): 4_409_186_304}
MACS |= {("ViT-L/16", 224): 61_554_712_576, ("ViT-H/14", 224): 167_295_109_120}
MACS |= {("ViT-B/16", 384): 55_484_350_464}


def check_against_trace(make):
    import tensorflow as tf

    # Without ever giving its variables memory.
    with keras.StatelessScope(initialize_variables=False):
        model, total = make(), 0
        function = tf.function(lambda images: model(images, training=False))
        graph = function.get_concrete_function(tf.TensorSpec((1, *model.input.shape[1:]))).graph
    for op in graph.get_operations():
        assert op.type not in ("Einsum", "XlaConvV2", "PartitionedCall"), op.name
        if op.type == "MatMul":
            rows, inner = op.inputs[0].shape[:: -1 if op.get_attr("transpose_a") else 1]
            total += rows * inner * op.outputs[0].shape[-1]
        elif op.type == "BatchMatMulV2":
            assert not op.get_attr("adj_x")
            total += int(np.prod(op.inputs[0].shape)) * op.outputs[0].shape[-1]
        elif op.type == "Conv2D":
            total += int(np.prod(op.outputs[0].shape)) * int(np.prod(op.inputs[1].shape[:3]))
    counted = keras_vit.costs(model)
    assert (counted.executed_macs, counted.parameters) == (total, model.count_params())
    assert {type(each) for each in counted.total} == {int}
    return counted


@of_tensorflow
@pytest.mark.rows(
    {},
    {"num_classes": None, "representation_size": 12},
    {"classifier": "gap", "position_embedding": "learned_2d", "position_placement": "every"},
    {"classifier": "map", "position_placement": "shared"},
    {"classifier": "token_gap", "register_tokens": 4, "in_channels": 5},
    {"classifier": "unpooled", "representation_size": 20, "position_embedding": "none"},
    {"position_embedding": "relative"},
    {"classifier": "distilled", "register_tokens": 2},
    {"position_embedding": "rope_2d", "mlp": "swiglu", "register_tokens": 4},
    {"classifier": "gap", "position_embedding": "relative"},
    {"classifier": "gap", "attention": "axial", "position_embedding": "relative"},
    {"position_embedding": "learned_2d", "position_placement": "every"},
    {"classifier": "gap", "position_embedding": "sincos_2d"},
    {"resnet": {"num_layers": ()}, "patch_size": 2, "image_size": (61, 97), "in_channels": 1},
    {"resnet": {"num_layers": (1, 2), "width_factor": 0.5}, "patch_size": 1},
)
def test_every_option_equals_its_traced_graph(overrides):
    arguments = {"image_size": (32, 80), "patch_size": 16, "mlp_dim": 24, "num_layers": 3}
    check_against_trace(lambda: tiny_vit(**arguments | overrides))


@of_tensorflow
def test_the_papers_convention_does_not_read_padding():
    hybrid = {"resnet": {"num_layers": (2, 1)}, "classifier": "gap"}
    for make, macs in (
        (lambda: keras_vit.ResNetV2((1, 2), 1, 7, image_size=(45, 70)), 60_796_736),
        (lambda: keras_vit.VisionTransformer((61, 97), 1, 16, 24, 2, 1, **hybrid), 117_702_080),
    ):
        counted = check_against_trace(make)
        assert counted.macs == macs < counted.executed_macs


def test_macs_of_the_papers_models_and_types_that_add_up():
    counted = {(name, size): keras_vit.costs(name, image_size=size) for name, size in MACS}
    assert {key: each.macs for key, each in counted.items()} == MACS
    assert all(each.flops == 2 * each.macs for each in counted.values())
    counted = keras_vit.costs("ViT-B/16")
    assert counted.by_type["head"] == (769_000, 768_000, 768_000)
    assert counted.by_type["patch embedding"].macs == 3 * 16**2 * 196 * 768
    assert "convolution" not in counted.by_type
    assert "17,563,828,224" in str(counted).splitlines()[-1]


@pytest.mark.parametrize("model, epochs", paper_tables.TABLE_6_EXAFLOPS)
def test_table_6(model, epochs):
    counted = keras_vit.costs(model, num_classes=None)
    ours = counted.exaflops(epochs * paper_tables.UPSTREAM_IMAGES["jft"])
    tolerance = {"ViT-B/32": 0.021}.get(model, 0.003 if model.startswith("ViT") else 0.015)
    agrees = abs(ours / paper_tables.TABLE_6_EXAFLOPS[model, epochs] - 1) <= tolerance
    assert agrees != ((model, epochs) in paper_tables.TABLE_6_MISPRINTS)


@pytest.mark.rows(
    ("ViT-B/16", {"patchsize": 8}, "patchsize"),
    ("ViT-Z/16", {}, "'ViT-Z/16'"),
    ("AxialResNet-S", {}, "ResNetV2 or VisionTransformer, or the name of one.*of AxialResNet"),
    # Models that cannot be built.
    ("ViT-B/16", {"num_layers": -3}, "num_layers"),
    ("ViT-B/16", {"hidden_size": 770}, "hidden_size"),
    ("ViT-B/16", {"attention": "axial"}, "classifier"),
    ("ViT-B/16", {"image_size": 8}, "at least one patch"),
    (tiny_vit, {"image_size": 64}, "image_size"),
    (keras.Sequential, {}, "Sequential"),
)
def test_mistakes_are_named(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.costs(model if isinstance(model, str) else model(), **arguments)
