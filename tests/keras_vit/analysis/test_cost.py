"""Costs against closed forms, the paper's table, and what traced graphs multiply."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import variants
from keras_vit.training import paper_tables

# Small models of every option are traced on every run, these in longer ones, others in the longest.
LONG = ("R50+ViT-B/16", "ViT-B/16", "BiT-R50x1", "Axial-ViT-B/32", "R+ViT-Ti/16", "R26+ViT-S/32")
JFT_IMAGES = paper_tables.UPSTREAM_IMAGES["jft"]


traced = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow traces the graph"
)


def graph_of(make):
    """Traces a model for one image without ever giving its variables memory."""
    import tensorflow as tf

    with keras.StatelessScope(initialize_variables=False):
        model = make()
        function = tf.function(lambda images: model(images, training=False))
        shape = tf.TensorSpec((1, *model.input.shape[1:]))
        return model, function.get_concrete_function(shape).graph


def convolution_macs(op, padding_counts):
    from tensorflow import get_static_value

    kernel = op.inputs[1].shape
    source, output = op.inputs[0], op.outputs[0].shape
    if padding_counts:
        return int(np.prod(output)) * int(np.prod(kernel[:3]))
    padded = source.op.type in ("Pad", "PadV2")
    size = source.op.inputs[0].shape if padded else source.shape
    before = get_static_value(source.op.inputs[1])[1:3, 0] if padded else (0, 0)
    strides = op.get_attr("strides")[1:3]
    read = []
    for axis in (0, 1):
        start = before[axis]
        if op.get_attr("padding") == b"SAME":
            needed = (output[1 + axis] - 1) * strides[axis] + kernel[axis]
            start = max(needed - size[1 + axis], 0) // 2
        places = [
            place * strides[axis] + offset - start
            for place in range(output[1 + axis])
            for offset in range(kernel[axis])
        ]
        read.append(sum(0 <= place < size[1 + axis] for place in places))
    return read[0] * read[1] * kernel[2] * kernel[3]


def macs_of(graph, padding_counts=True):
    """Adds up the multiplications of a graph's matrix products and convolutions."""
    total = 0
    for op in graph.get_operations():
        assert op.type not in ("Einsum", "XlaConvV2", "PartitionedCall"), op.name
        if op.type == "MatMul":
            rows, inner = op.inputs[0].shape[:: -1 if op.get_attr("transpose_a") else 1]
            total += rows * inner * op.outputs[0].shape[-1]
        elif op.type == "BatchMatMulV2":
            assert not op.get_attr("adj_x")
            total += int(np.prod(op.inputs[0].shape)) * op.outputs[0].shape[-1]
        elif op.type == "Conv2D":
            total += convolution_macs(op, padding_counts)
    return total


def check_against_trace(make):
    model, graph = graph_of(make)
    counted = keras_vit.costs(model)
    assert counted.executed_macs == macs_of(graph)
    assert counted.parameters == model.count_params()
    assert {type(each) for each in counted.total} == {int}
    return counted, graph


@traced
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.long if n in LONG else pytest.mark.slow)
        for n in variants.NAMES
    ],
)
def test_named_model_equals_its_traced_graph(name):
    check_against_trace(lambda: keras_vit.create_model(name))


@traced
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"num_classes": None, "representation_size": 12},
        {"classifier": "gap", "position_embedding": "learned_2d", "position_placement": "every"},
        {"classifier": "map", "position_placement": "shared"},
        {"classifier": "token_gap", "register_tokens": 4, "in_channels": 5},
        {"classifier": "unpooled", "representation_size": 20, "position_embedding": "none"},
        {"position_embedding": "relative"},
        {"classifier": "gap", "position_embedding": "relative"},
        {"classifier": "gap", "attention": "axial", "position_embedding": "relative"},
        {"position_embedding": "learned_2d", "position_placement": "every"},
        {"classifier": "gap", "position_embedding": "sincos_2d"},
        {"resnet": {"num_layers": ()}, "patch_size": 2, "image_size": (61, 97), "in_channels": 1},
        {"resnet": {"num_layers": (1, 2), "width_factor": 0.5}, "patch_size": 1},
    ],
)
def test_every_option_equals_its_traced_graph(overrides):
    arguments = {
        "image_size": (32, 80),
        "patch_size": 16,
        "hidden_size": 16,
        "mlp_dim": 24,
        "num_heads": 2,
        "num_layers": 3,
        "num_classes": 5,
        **overrides,
    }
    check_against_trace(lambda: keras_vit.VisionTransformer(**arguments))


@traced
@pytest.mark.parametrize(
    "make",
    [
        lambda: keras_vit.ResNetV2((1, 2), 1, 7, image_size=(45, 70)),
        lambda: keras_vit.VisionTransformer(
            (61, 97), 1, 16, 24, 2, 1, classifier="gap", resnet={"num_layers": (2, 1)}
        ),
    ],
)
def test_the_papers_convention_does_not_read_padding(make):
    counted, graph = check_against_trace(make)
    assert counted.macs == macs_of(graph, padding_counts=False)
    assert counted.macs < counted.executed_macs


@pytest.mark.parametrize(
    ("name", "image_size", "macs"),
    [
        ("ViT-B/16", 224, 17_563_828_224),
        ("ViT-B/32", 224, 4_409_186_304),
        ("ViT-L/16", 224, 61_554_712_576),
        ("ViT-H/14", 224, 167_295_109_120),
        ("ViT-B/16", 384, 55_484_350_464),
    ],
)
def test_macs_of_the_papers_models(name, image_size, macs):
    counted = keras_vit.costs(name, image_size=image_size)
    assert counted.macs == macs
    assert counted.flops == 2 * macs


@pytest.mark.parametrize("model, epochs", paper_tables.TABLE_6_EXAFLOPS)
def test_table_6(model, epochs):
    counted = keras_vit.costs(model, num_classes=None)
    ours = counted.exaflops(epochs * JFT_IMAGES)
    tolerance = 0.015
    if model.startswith("ViT"):
        tolerance = 0.021 if model == "ViT-B/32" else 0.003
    agrees = abs(ours / paper_tables.TABLE_6_EXAFLOPS[model, epochs] - 1) <= tolerance
    assert agrees != ((model, epochs) in paper_tables.TABLE_6_MISPRINTS)


def test_types_add_up_and_are_shown():
    counted = keras_vit.costs("ViT-B/16")
    assert counted.by_type["head"] == (769_000, 768_000, 768_000)
    assert counted.by_type["patch embedding"].macs == 3 * 16**2 * 196 * 768
    assert "convolution" not in counted.by_type
    assert "17,563,828,224" in str(counted).splitlines()[-1]


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="patchsize"):
        keras_vit.costs("ViT-B/16", patchsize=8)
    with pytest.raises(ValueError, match="'ViT-Z/16'"):
        keras_vit.costs("ViT-Z/16")
    model = keras_vit.ResNetV2((1,), num_classes=None, image_size=32)
    with pytest.raises(ValueError, match="image_size"):
        keras_vit.costs(model, image_size=64)
    with pytest.raises(ValueError, match="Sequential"):
        keras_vit.costs(keras.Sequential([]))
    accepted = "a model of ResNetV2 or VisionTransformer, or the name of one"
    with pytest.raises(ValueError, match=f"{accepted}. Received: 'AxialResNet-S', of AxialResNet"):
        keras_vit.costs("AxialResNet-S")


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_layers": -3},
        {"hidden_size": 770},
        {"classifier": "GAP"},
        {"attention": "axial"},
        {"image_size": 8},
        {"num_classes": 0},
    ],
)
def test_models_that_cannot_be_built_cost_nothing(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments)) + "|classifier|at least one patch"):
        keras_vit.costs("ViT-B/16", **arguments)
