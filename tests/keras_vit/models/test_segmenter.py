import json
import pickle
import warnings
import zipfile

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit.checkpoints.errors import CheckpointError
from keras_vit.checkpoints.torch_layouts import SEGMENTER_LINEAR, SEGMENTER_MASK
from tests.conftest import GOLDEN
from tests.golden import golden
from tests.keras_vit.small import FEW_STEPS, assert_same, forward, make_images, randomize, to_numpy
from tests.tiny_vit import tiny_vit

CASES = json.loads((GOLDEN / "segmenter.json").read_text())
MODELS = [name for name, case in CASES.items() if "logits" in case]


def arrays_of(case):
    shapes = {name: tuple(shape) for name, shape in case["arrays"].items()}
    return {name: golden.torch_weight(name, shape, case["seed"]) for name, shape in shapes.items()}


def build(case, **overrides):
    given = dict(case["model"])
    decoder = {"decoder": given.pop("decoder"), "num_classes": case["num_classes"]}
    if "decoder_layers" in given:
        names = ("decoder_layers", "decoder_heads", "decoder_hidden_size", "decoder_mlp_dim")
        layers, heads, _, _ = (given.pop(name) for name in names)
        decoder |= {"decoder_layers": layers, "decoder_heads": heads}
    given["register_tokens"] = int(given.pop("distilled"))
    size = {"image_size": case["positions_for"], "num_classes": None}
    return keras_vit.Segmenter(keras_vit.VisionTransformer(**given | size | overrides), **decoder)


def load(model, case, path):
    save_file(arrays_of(case), path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keras_vit.load_checkpoint(model, path, mean=case["mean"], std=case["std"])
    return model


def images_of(case):
    return golden.image((case["batch"], *case["image_size"], 3), case["seed"])


def assert_close(found, expected):
    expected = np.array(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 2e-5 * expected.std()


@pytest.mark.parametrize("name", MODELS)
def test_masks_and_logits_are_those_of_the_original(name, tmp_path):
    case = CASES[name]
    model, images = load(build(case), case, tmp_path / "model.safetensors"), images_of(case)
    graphs = [model.any_resolution(("masks", "logits"))]
    if case["image_size"] == case["positions_for"]:
        graphs.append(model.up_to(("masks", "logits")))
    for graph in graphs:
        found = forward(graph, images)
        assert_close(found["masks"], case["masks"])
        assert found["logits"].shape == (*images.shape[:3], case["num_classes"])
        assert_close(found["logits"][:, case["rows"]][:, :, case["columns"]], case["logits"])


@pytest.mark.parametrize("name", ["mask", "linear_deit_padded"])
def test_the_authors_names_go_both_ways(name, tmp_path):
    case = CASES[name]
    model = load(build(case), case, tmp_path / "model.safetensors")
    layout = SEGMENTER_LINEAR if case["model"]["decoder"] == "linear" else SEGMENTER_MASK
    keras_vit.save_checkpoint(model, tmp_path / "back.safetensors", layout)
    written, expected = load_file(tmp_path / "back.safetensors"), arrays_of(case)
    assert written.keys() == {name for name in expected if not name.startswith("encoder.head")}
    exact = [name for name in written if "patch_embed" not in name]
    if case["model"]["distilled"]:
        # The token and its position come back as their sum.
        exact = [name for name in exact if name not in ("encoder.dist_token", "encoder.pos_embed")]
        total = written["encoder.dist_token"] + written["encoder.pos_embed"][:, 1:2]
        original = expected["encoder.dist_token"] + expected["encoder.pos_embed"][:, 1:2]
        np.testing.assert_array_equal(total, original)
    for array in exact:
        np.testing.assert_array_equal(written[array], expected[array], err_msg=array)
    again = build(case)
    keras_vit.load_checkpoint(again, tmp_path / "back.safetensors", mean=0.5, std=0.5)
    assert_same(model, again)
    keras_vit.save_checkpoint(model, tmp_path / "own.npz")
    again = build(case)
    keras_vit.load_checkpoint(again, tmp_path / "own.npz")
    np.testing.assert_allclose(
        forward(model, images_of(CASES["mask"])),
        forward(again, images_of(CASES["mask"])),
        atol=2e-5,
    )


def test_keras_file_has_classes_decoder_and_padding(tmp_path):
    case = CASES["linear_deit_padded"]
    model = load(build(case), case, tmp_path / "model.safetensors")
    expected = 2 * np.array(case["mean"]) - 1
    np.testing.assert_allclose(model.arguments["padding_color"], expected, atol=1e-15)
    model.class_names = ["road", "grass", "sky", "tree", "pond"]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    assert_same(model, loaded)
    other = build(case)
    keras_vit.load_checkpoint(other, tmp_path / "model.keras")
    assert_same(model, other)
    assert other.arguments["padding_color"] == model.arguments["padding_color"]
    assert other.class_names == ("road", "grass", "sky", "tree", "pond")


@pytest.mark.rows(
    ({"classifier": "map"}, "mask"),
    ({"position_embedding": "sincos_2d", "classifier": "gap", "register_tokens": 2}, "linear"),
    ({"position_embedding": "rope_2d", "mlp": "swiglu"}, "mask"),
    ({"resnet": {"num_layers": (1, 1)}, "patch_size": 2, "image_size": 32}, "linear"),
)
def test_every_encoder_trains_and_any_resolution_is_the_model_at_its_size(arguments, decoder):
    encoder = tiny_vit(num_classes=None, **arguments)
    model = randomize(keras_vit.Segmenter(encoder, 3, decoder))
    side = encoder.input.shape[1]
    images = make_images(2, side, side)
    found = forward(model, images)
    assert found.shape == (2, side, side, 3)
    np.testing.assert_allclose(forward(model.any_resolution(), images), found, atol=3e-5)
    small = forward(model.any_resolution(), images[:, : side - 3, : side - 5])
    assert small.shape == (2, side - 3, side - 5, 3)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        spec = tf.TensorSpec((None, None, None, 3))
        traced = tf.function(model.any_resolution(), input_signature=[spec], autograph=False)
        shrunk = tf.constant(images[:, : side - 3, : side - 5])
        np.testing.assert_allclose(traced(shrunk), small, atol=3e-5)
    # Neither the encoder's pooling nor weights outside of the graph.
    paths = [weight.path for weight in model.trainable_variables]
    assert len(paths) == len(set(paths)) and not any(path.startswith("pool") for path in paths)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, **FEW_STEPS)
    before = to_numpy(model.get_layer("embedding").projection.kernel).copy()
    model.fit(images, np.ones((2, side, side), "int32"), verbose=0)
    assert np.abs(to_numpy(model.get_layer("embedding").projection.kernel) - before).max() > 0


def test_half_precision_computes_masks_in_float32():
    encoder = tiny_vit(num_classes=None, dtype="mixed_bfloat16")
    model = randomize(keras_vit.Segmenter(encoder, 3))
    names = ("encoded", "class_embeddings", "logits")
    outputs = model.up_to(names)(make_images())
    dtypes = [keras.backend.standardize_dtype(outputs[name].dtype) for name in names]
    assert dtypes == ["bfloat16", "float32", "float32"]
    norms = np.linalg.norm(to_numpy(outputs["class_embeddings"]), axis=-1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


def test_a_classifier_starts_the_encoder(tmp_path):
    classifier = randomize(tiny_vit())
    keras_vit.save_checkpoint(classifier, tmp_path / "classifier.npz")
    model = keras_vit.Segmenter(tiny_vit(num_classes=None), 3)
    keras_vit.load_checkpoint(model.encoder, tmp_path / "classifier.npz", skip=("head",))
    found = forward(model.up_to("encoded"), make_images())
    np.testing.assert_allclose(
        found, forward(classifier.up_to("encoded"), make_images()), atol=2e-5
    )
    with pytest.raises(CheckpointError, match=r"(?s)Missing from the file: .*Decoder/classes"):
        keras_vit.load_checkpoint(model, tmp_path / "classifier.npz", skip=("head",))


def test_epsilon_and_register_tokens_of_a_file_are_checked(tmp_path):
    case = CASES["linear_deit_padded"]
    model = build(case, layer_norm_epsilon=1e-6)
    save_file(arrays_of(case), path := tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match="asks for layer_norm_epsilon=1e-05"):
        keras_vit.load_checkpoint(model, path, mean=case["mean"], std=case["std"])
    with pytest.raises(CheckpointError, match=r"Left over in the file: encoder\.reg_token"):
        load(build(case, register_tokens=0), case, path)
    wide = build(case, register_tokens=2)
    with pytest.raises(CheckpointError, match="a place for one token"):
        keras_vit.save_checkpoint(wide, tmp_path / "wide.safetensors", SEGMENTER_LINEAR)
    assert not (tmp_path / "wide.safetensors").exists()


@pytest.mark.rows(
    ({"encoder": tiny_vit}, "Expected an encoder without head: build it with num_classes=None"),
    ({"num_classes": 0}, "`num_classes` must be a positive int"),
    ({"num_classes": None}, "`num_classes` must be a positive int. Received: num_classes=None"),
    ({"decoder": "unet"}, "decoder"),
    ({"decoder_heads": 3}, "`decoder_heads` must divide the encoder's 16 channels"),
    ({"padding_color": (0, 0)}, "`padding_color` must be"),
)
def test_arguments_are_checked(changes, message):
    changes = {n: value() if callable(value) else value for n, value in changes.items()}
    arguments = {"encoder": tiny_vit(num_classes=None), "num_classes": 3, **changes}
    with pytest.raises(ValueError, match=message):
        keras_vit.Segmenter(**arguments)


@pytest.mark.filterwarnings("ignore:Expected images")
def test_an_image_size_of_partial_patches_is_refused():
    with pytest.raises(ValueError, match=r"multiple of them\. Received: image_size=\(18, 16\)"):
        keras_vit.Segmenter(tiny_vit(num_classes=None, image_size=(18, 16)), 3)


def test_the_authors_pickle_is_refused_with_the_lines_that_convert_it(tmp_path):
    path = tmp_path / "checkpoint.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("checkpoint/data.pkl", pickle.dumps({"model": {}, "n_cls": 5}))
    model = keras_vit.Segmenter(tiny_vit(num_classes=None), 5)
    with pytest.raises(CheckpointError) as caught:
        keras_vit.load_checkpoint(model, path)
    lines = str(caught.value).splitlines()[1:]
    assert [line.split("(")[0] for line in lines] == [
        "import torch, safetensors.torch;",
        "all = torch.load",
        "safetensors.torch.save_file",
    ]
    compile("\n".join(lines), "lines", "exec")
