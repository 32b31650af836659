import collections
import zipfile

import flatbuffers
import keras
import numpy as np
import pytest
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter

from keras_vit import export
from keras_vit.export.tflite.flatbuffer import TFLiteFile
from keras_vit.export.tflite.to_tflite import to_tflite_files
from keras_vit.export.verification.report_and_thresholds import THRESHOLDS
from keras_vit.training.evaluators.exported_files import interface_of, labels_of
from tests.export.conftest import LABELS, answer, run, verify

# Largest error of logits whose standard deviation is about 1.
TOLERANCE = {
    "none": 1e-5,
    "float16": 5e-3,
    "dynamic": 0.1,
    "int8": 0.2,
    "int8-full": 0.6,
    "int16x8": 0.1,
    "int8-int16": 0.2,
}


@pytest.fixture(scope="module")
def model(make_vit):
    model = make_vit()
    model.preprocessing = "decode|resize_small(40)|central_crop(32)|value_range(-1, 1)"
    return model


@pytest.fixture(scope="module")
def files(model, images, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tflite")
    files = {quantization: directory / f"{quantization}.tflite" for quantization in TOLERANCE}
    to_tflite_files(
        model,
        files,
        calibration=images,
        labels=LABELS,
        batch_sizes=(4,),
        feature_vector=True,
    )
    return files


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    """The file with nothing but the model."""
    return export.to_tflite(model, tmp_path_factory.mktemp("plain") / "m.tflite")


@pytest.mark.parametrize("quantization", TOLERANCE)
def test_every_signature_agrees_with_keras(model, files, images, quantization):
    file, tolerance = files[quantization], TOLERANCE[quantization]
    logits = answer(model, images)
    assert 0.2 < logits.std() < 5
    for signature in ("serving_default", "batch_4"):
        result = run(file, images, signature)
        assert np.abs(result - logits).max() < tolerance
        if quantization in ("none", "float16"):
            assert (result.argmax(1) == logits.argmax(1)).all()
    report, limits = verify(model, file, images), THRESHOLDS[quantization]
    assert report.kind == quantization and report.cosine >= limits.cosine
    assert report.max_error <= limits.max_error * report.scale
    result = run(file, images, "feature_vector")
    assert np.abs(result - answer(model, images, "representation")).max() < 2 * tolerance


@pytest.mark.parametrize("quantization", ["none", "float16", "dynamic", "int8"])
def test_xnnpack_runs_the_whole_graph(files, quantization):
    assert CompiledModel.from_file(str(files[quantization])).is_fully_accelerated()
    # The main signature is the first subgraph.
    (image,) = Interpreter(str(files[quantization])).get_input_details()
    assert tuple(image["shape"]) == (1, 32, 32, 3)


def test_signatures_share_the_weights_which_quantizing_shrinks(model, files, plain):
    alone = plain.stat().st_size
    weights = sum(w.numpy().nbytes for w in model.weights)
    size = {name: file.stat().st_size for name, file in files.items()}
    assert weights < alone
    assert size["none"] < 1.6 * alone  # three graphs around one set of weights
    assert size["none"] - size["float16"] > 0.4 * weights
    assert size["none"] - size["dynamic"] > 0.5 * weights


def test_affine_operations_are_multiplied_into_the_weights(plain):
    graph = TFLiteFile(plain).operations
    count = collections.Counter(graph)
    assert graph[0] == "CONV_2D"  # the rescaling of pixels is in the kernel
    layers, norms = 2, 2 * 2 + 1
    assert count["FULLY_CONNECTED"] == 6 * layers + 1
    assert count["BATCH_MATMUL"] == 2 * layers
    assert count["GELU"] == count["SOFTMAX"] == layers
    # Two products a normalization. Only the last block's first meets a slice before a dense
    # layer, and keeps its scale.
    assert count["MUL"] == 2 * norms + 1
    assert count["RSQRT"] == norms
    assert not {"NEG", "SQUARED_DIFFERENCE", "DIV", "POW", "ERF"} & set(count)


def test_the_last_block_is_computed_for_the_class_token_alone(plain):
    file = TFLiteFile(plain)
    (graph,) = file.tree.subgraphs
    hidden = [
        int(np.prod(graph.tensors[operation.outputs[0]].shape))
        for operation, name in zip(graph.operators, file.operations, strict=True)
        if name == "GELU"
    ]
    assert hidden == [17 * 64, 1 * 64]


class Table:
    """A reader of flatbuffers that knows no schema."""

    def __init__(self, buffer, position):
        self.table = flatbuffers.table.Table(buffer, position)

    def _place(self, field):
        offset = self.table.Offset(4 + 2 * field)
        assert offset, f"field {field} is missing"
        return offset + self.table.Pos

    def string(self, field):
        return self.table.String(self._place(field)).decode()

    def byte(self, field):
        return self.table.Get(flatbuffers.number_types.Uint8Flags, self._place(field))

    def child(self, field):
        return Table(self.table.Bytes, self.table.Indirect(self._place(field)))

    def children(self, field):
        offset = self._place(field) - self.table.Pos
        places = (self.table.Vector(offset) + 4 * i for i in range(self.table.VectorLen(offset)))
        return [Table(self.table.Bytes, self.table.Indirect(place)) for place in places]

    def floats(self, field):
        offset = self._place(field) - self.table.Pos
        return [*self.table.GetVectorAsNumpy(flatbuffers.number_types.Float32Flags, offset)]


@pytest.mark.parametrize("quantization", ["none", "float16", "int8-int16"])
def test_metadata_names_pixels_and_labels(files, quantization):
    tree = TFLiteFile(files[quantization]).tree
    (entry,) = [m for m in tree.metadata if m.name == b"TFLITE_METADATA"]
    metadata = bytes(tree.buffers[entry.buffer].data)
    assert flatbuffers.util.BufferHasIdentifier(metadata, 0, b"M001")
    root = flatbuffers.encode.Get(flatbuffers.packer.uoffset, metadata, 0)
    (subgraph,) = Table(metadata, root).children(3)
    (image,), (logits,) = subgraph.children(2), subgraph.children(3)
    assert (image.string(0), logits.string(0)) == ("image", "logits")
    content = image.child(3)
    assert content.byte(0) == 2 and content.child(1).byte(0) == 1  # an image, RGB
    (unit,) = image.children(4)
    assert unit.byte(0) == 1
    assert (unit.child(1).floats(0), unit.child(1).floats(1)) == ([0.0], [255.0])
    (associated,) = logits.children(6)
    assert (associated.string(0), associated.byte(2)) == ("labels.txt", 2)

    assert labels_of(files[quantization]) == LABELS
    with zipfile.ZipFile(files[quantization]) as archive:
        assert archive.testzip() is None and archive.namelist() == ["interface.json", "labels.txt"]


def test_a_model_without_head_gives_its_representation(make_vit, images, tmp_path):
    features, file = make_vit(num_classes=None), tmp_path / "f.tflite"
    with pytest.raises(ValueError, match="the model has no head"):
        export.to_tflite(features, file, probabilities=True)
    export.to_tflite(features, file)
    np.testing.assert_allclose(run(file, images), answer(features, images), atol=1e-4)


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_probabilities_in_place_of_logits(model, images, tmp_path, activation):
    options = {"quantization": "int8-full", "calibration": images, "batch_sizes": (4,)}
    options |= {"feature_vector": True, "activation": activation, "probabilities": True}
    file = export.to_tflite(model, tmp_path / "m.tflite", **options)
    expected = getattr(keras.ops, activation)(answer(model, images))
    np.testing.assert_allclose(run(file, images, "batch_4"), expected, atol=0.1)
    outputs = {
        name: each["outputs"] for name, each in Interpreter(str(file)).get_signature_list().items()
    }
    assert outputs == {
        "serving_default": ["probabilities"],
        "batch_4": ["probabilities"],
        "feature_vector": ["representation"],
    }
    assert interface_of(file)["activation"] == "none"
    report = verify(model, file, images, expected.numpy().argmax(-1))
    assert report.output == "probabilities" and report.max_error < 0.1
    assert report.model_accuracy == 1


def test_equal_exports_are_equal_and_plain_ones_have_no_labels(model, plain, tmp_path):
    again = export.to_tflite(model, tmp_path / "m.tflite")
    assert again.read_bytes() == plain.read_bytes()
    assert labels_of(plain) is None
    # The description says how photos are prepared.
    expected = b"decode|resize_small(40)|central_crop(32)|value_range(0,1)"
    assert expected in plain.read_bytes().split(b"interface.json")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"calibration": None}, "calibration=images"),
        ({"calibration": lambda images: images * 255}, r"look like \[0, 255\]"),
        ({"calibration": lambda images: images * 2 - 1}, r"look like \[-1, 1\]"),
        ({"calibration": lambda images: images[:, :16]}, r"\(32, 32, 3\)"),
        ({"calibration": lambda images: []}, "no images"),
        ({"calibration": np.ones_like}, "8 images of one color each"),
        ({"calibration": iter, "batch_sizes": (9,)}, "at least 9"),
        ({"quantization": "int4"}, "int4"),
        ({"batch_sizes": (0,)}, "positive ints"),
    ],
)
def test_arguments_are_checked(model, images, tmp_path, arguments, message):
    arguments = {"quantization": "int8", "calibration": np.asarray, **arguments}
    if arguments["calibration"]:
        arguments["calibration"] = arguments["calibration"](images)
    with pytest.raises(ValueError, match=message):
        export.to_tflite(model, tmp_path / "m.tflite", **arguments)
    assert list(tmp_path.iterdir()) == []
