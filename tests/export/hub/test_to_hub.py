import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from PIL import Image

import keras_vit
from keras_vit import export
from keras_vit.export.hub import tar_gz
from keras_vit.export.verification.browser import served
from keras_vit.photos.prepare_photos import prepare_photo
from keras_vit.training.inference.interface import labels_of
from tests.conftest import ROOT
from tests.export.conftest import LABELS, answer, verify

TARGETS = np.eye(5, dtype="float32")[np.arange(8) % 5]
CONTROL_FLOW = {"Assert", "If", "StatelessIf", "While", "StatelessWhile", "Switch", "Merge", "Case"}


@pytest.fixture(scope="module")
def model(make_vit):
    model = make_vit(num_layers=1, dropout_rate=0.1, representation_size=24)
    model.preprocessing = "decode|resize_small(40)|central_crop(32)|value_range(-1, 1)"
    model.get_layer("head").kernel.regularizer = keras.regularizers.L2(0.5)
    return model


@pytest.fixture(scope="module")
def directory(model, tmp_path_factory):
    return export.to_hub(model, tmp_path_factory.mktemp("hub") / "module", labels=LABELS)


@pytest.fixture(scope="module")
def module(directory):
    return hub.load(str(directory))


@pytest.fixture(scope="module")
def logits(model, images):
    return answer(model, images)


def changed(before, variables):
    return sum(np.any(a != b.numpy()) for a, b in zip(before, variables, strict=True))


def test_a_module_has_labels_and_every_weight_once_in_float32(model, module, directory):
    assert module.labels.asset_path.numpy().decode() == str(directory / "assets/labels.txt")
    assert labels_of(directory) == LABELS
    # Keras's own export stores each of them twice.
    stored = tf.train.load_checkpoint(str(directory / "variables/variables"))
    types, shapes = stored.get_variable_to_dtype_map(), stored.get_variable_to_shape_map()
    found = [tuple(shape) for name, shape in shapes.items() if types[name] == tf.float32]
    assert sorted(found) == sorted(tuple(w.shape) for w in model.weights)
    assert len(module.variables) > len(module.trainable_variables)  # the dropouts' seeds


def test_it_gives_what_keras_does_and_drops_in_training_alone(model, module, images, logits):
    for size in (1, 3, 8):
        np.testing.assert_allclose(module(images[:size]), logits[:size], atol=1e-5)
    np.testing.assert_array_equal(module(images, training=False), module(images))
    first, second = module(images, training=True), module(images, training=True)
    assert min(np.abs(first - logits).max(), np.abs(first - second).max()) > 1e-2
    features = module.feature_vector
    np.testing.assert_allclose(features(images), answer(model, images, "representation"), atol=1e-5)
    assert {id(v) for v in features.variables} < {id(v) for v in module.variables}
    assert len(module.trainable_variables) - len(features.trainable_variables) == 2
    results = module.endpoints(images)
    assert set(results) == {*model.endpoints, "block_00/attention"}
    for name in model.endpoints:
        np.testing.assert_allclose(results[name], answer(model, images, name), atol=1e-5)
    (maps,) = keras_vit.attention_maps(model, images * 2 - 1)
    np.testing.assert_allclose(results["block_00/attention"], maps, atol=1e-5)


def test_signatures_take_floats_integers_and_files(model, module, images, logits, tmp_path):
    names = ("default", "uint8", "bytes")
    of_floats, of_integers, of_files = (module.signatures[f"serving_{name}"] for name in names)
    answers = of_floats(images=tf.constant(images))
    np.testing.assert_allclose(answers["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(logits), atol=1e-5)
    scales = np.ones((len(images), 1, 1, 1), "float32")
    scales[2] = 255  # an image of bytes
    for name, found in of_floats(images=tf.constant(images * scales)).items():
        assert np.isnan(found[2]).all()
        others = np.arange(len(images)) != 2
        np.testing.assert_allclose(found[others], answers[name][others], atol=1e-6)

    pixels = np.round(images * 255).astype("uint8")
    found = of_integers(images=tf.constant(pixels))["logits"]
    np.testing.assert_allclose(found, answer(model, pixels / np.float32(255)), atol=1e-5)
    # A photo that was taken sideways, prepared as the model wants.
    pixels = np.random.default_rng(2).integers(0, 256, (50, 41, 3)).astype("uint8")
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(pixels).save(tmp_path / "photo.png", exif=exif)
    prepared = prepare_photo(np.rot90(pixels), model.preprocessing)[None]
    found = of_files(image_bytes=tf.constant([(tmp_path / "photo.png").read_bytes()]))["logits"]
    np.testing.assert_allclose(found, model(prepared, training=False), atol=1e-5)


def operations(function):
    """Returns the types of all operations of a signature, those of the functions it calls too."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    return {node.op for node in nodes}


@pytest.mark.rows(
    ({"dropout_rate": 0.1}, {"resolution": "any"}),
    long=[
        ({"classifier": "map", "dropout_rate": 0.1}, {"output": "representation"}),
        ({"classifier": "unpooled", "num_classes": None, "stochastic_depth_rate": 0.1}, {}),
        ({"resnet": {"num_layers": (1,)}, "patch_size": 2, "remat": True}, {}),
    ],
)
def test_serving_default_has_no_control_flow(arguments, options, make_vit, images, tmp_path):
    model = make_vit(num_layers=1, **arguments)
    module = hub.load(str(export.to_hub(model, tmp_path / "m", **options)))
    function = module.signatures["serving_default"]
    assert "Conv2D" in operations(function) and not operations(function) & CONTROL_FLOW
    found, wrong = (function(images=tf.constant(each)) for each in (images, 255 * images))
    (name,) = {"logits", "representation"} & set(found)
    np.testing.assert_allclose(found[name], answer(model, images, name), atol=1e-5)
    assert np.isnan(wrong[name]).all()


@pytest.fixture(scope="module")
def any_directory(model, tmp_path_factory):
    return export.to_hub(model, tmp_path_factory.mktemp("hub") / "any", resolution="any")


@pytest.mark.long
def test_any_resolution_interpolates_positions_with_corners_aligned(model, any_directory, images):
    any_module = hub.load(str(any_directory))
    np.testing.assert_allclose(any_module(images), answer(model, images), atol=1e-5)
    other = np.random.default_rng(3).uniform(0, 1, (2, 56, 27, 3)).astype("float32")
    np.testing.assert_allclose(any_module(other), model.any_resolution()(other * 2 - 1), atol=1e-5)
    attention = any_module.endpoints(other)["block_00/attention"]
    assert attention.shape == (2, 2, 1 + 7 * 3, 1 + 7 * 3)
    np.testing.assert_allclose(tf.reduce_sum(attention, -1), 1, atol=1e-5)


# Memory that a module of any resolution keeps of each size. The first size is the largest.
CALL = """
import gc, json, sys
import numpy as np, tensorflow as tf, tensorflow_hub as hub
module = hub.load(sys.argv[1])
spec = tf.TensorSpec((None, None, None, 3), tf.float32)
function = module if sys.argv[2] == "module" else tf.function(module, input_signature=[spec])
traces = module.__call__.experimental_get_tracing_count
def call(sizes):
    gc.collect()
    before = resident()
    for size in sizes:
        function(np.zeros((1, *size, 3), "float32"))
    gc.collect()
    return resident() - before
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
sizes = [(8 * rows, 8 * columns) for rows in range(8, 2, -1) for columns in range(8, 2, -1)]
call(sizes[:6])
before = traces()
found = {"new": call(sizes[6:]), "traces": traces() - before, "again": call(sizes[6:])}
print(json.dumps(found))
"""
SIZES = 30


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.rows(("module", "0", 8.0, SIZES), ("wrapped", "0", 0.25, 0), ("wrapped", "1", 2.0, 0))
def test_memory_of_each_new_size(function, onednn, most, traces, any_directory, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)  # The bounds are those of docs/tf_hub.md.
    command = [sys.executable, "-c", CALL, str(any_directory), function]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert found["traces"] == traces and found["new"] / SIZES < most, found
    assert found["again"] / SIZES < max(most / 4, 0.25), found


def test_sizes_that_weights_do_not_take_and_folders_of_others_are_refused(make_vit, tmp_path):
    axial = {"attention": "axial", "classifier": "gap"}
    relative = {"position_embedding": "relative"}
    for arguments, message in ((axial, "Axial attention"), (relative, "Relative positions")):
        model = make_vit(num_layers=1, **arguments)
        with pytest.raises(ValueError, match=message):
            export.to_hub(model, tmp_path / "m", resolution="any")
        with pytest.raises(ValueError, match=message):
            export.to_tflite(model, tmp_path / "m", image_sizes=(48,))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"without \*: TensorFlow takes it for a pattern"):
        export.to_hub(model, tmp_path / "a*b" / "m")
    (tmp_path / "chapter.tex").write_text("…")
    with pytest.raises(FileExistsError, match="something else"):
        export.to_hub(model, tmp_path)
    assert (tmp_path / "chapter.tex").read_text() == "…"


def test_a_feature_vector_module_has_no_head(model, images, tmp_path):
    module = hub.load(str(export.to_hub(model, tmp_path / "m", output="representation")))
    np.testing.assert_allclose(module(images), answer(model, images, "representation"), atol=1e-5)
    assert len(module.trainable_variables) == len(model.weights) - 2
    assert set(module.signatures["serving_default"].structured_outputs) == {"representation"}
    assert not hasattr(module, "feature_vector")


MAPS = """
import sys, numpy as np, tensorflow as tf
folder, given, found = sys.argv[1:]
of = tf.saved_model.load(folder).signatures["class_maps"]
images, classes = np.load(given).values()
np.save(found, of(images=tf.constant(images), classes=tf.constant(classes))["maps"])
"""


@pytest.mark.long
@pytest.mark.rows({"classifier": "distilled"}, {"classifier": "map", "register_tokens": 1})
def test_a_module_tells_which_patches_speak_for_a_class(arguments, make_vit, images, tmp_path):
    model = make_vit(**arguments)
    path = export.to_hub(model, tmp_path / "module", class_maps=True)
    bytes_at, lacking, best = 5, 6, 7
    given, classes = images.copy(), np.arange(8, dtype="int32") % 5
    given[bytes_at] *= 255
    classes[[lacking, best]] = 5, -1
    np.savez(tmp_path / "given.npz", images=given, classes=classes)
    files = [path, tmp_path / "given.npz", tmp_path / "found.npy"]
    subprocess.run([sys.executable, "-c", MAPS, *files], check=True)
    found = np.load(files[-1])
    classes[[lacking, best]] = 0, answer(model, images).argmax(-1)[best]
    expected = keras_vit.analysis.class_maps(model, images * 2 - 1, classes)
    assert expected.max() == 1 and np.isnan(found[[bytes_at, lacking]]).all()
    known = np.delete(np.arange(8), [bytes_at, lacking])
    np.testing.assert_allclose(found[known], expected[known], atol=1e-5)
    assert verify(model, path, images).ok
    module = hub.load(str(path))
    for variable in module.trainable_variables:
        variable.assign(0 * variable)
    given = {"images": tf.constant(images), "classes": tf.constant([0])}
    assert not np.any(module.signatures["class_maps"](**given)["maps"])
    for options in ({"resolution": "any"}, {"output": "representation"}):
        with pytest.raises(ValueError, match="Expected logits of images of one size with class_m"):
            export.to_hub(model, tmp_path / "other", class_maps=True, **options)
    with pytest.raises(ValueError, match=r"Expected a VisionTransformer\. Received"):
        resnet = keras_vit.ResNetV2((1,), num_classes=5, image_size=32)
        export.to_hub(resnet, tmp_path / "other", class_maps=True)
    assert not (tmp_path / "other").exists()


@pytest.mark.long
def test_a_module_of_masks_is_called_served_and_fine_tuned(segmenter, scenes, tmp_path):
    logits = answer(segmenter, scenes)
    path = export.to_hub(segmenter, tmp_path / "m", resolution="any")
    module = hub.load(str(path))
    np.testing.assert_allclose(module(scenes), logits, atol=5e-5)
    small = scenes[:, :27, :37]
    expected = segmenter.any_resolution()(small * 2 - 1, training=False)
    served = module.signatures["serving_default"](images=tf.constant(small))
    np.testing.assert_allclose(served["logits"], expected, atol=5e-5)
    np.testing.assert_allclose(served["probabilities"], tf.nn.softmax(expected), atol=1e-5)
    in_bytes = module.signatures["serving_default"](images=tf.constant(255 * small))
    assert np.isnan(in_bytes["logits"]).all() and not hasattr(module, "feature_vector")
    assert set(module.endpoints(small)) == set(segmenter.endpoints)
    assert labels_of(path) == LABELS
    layer = export.HubLayer(path)
    model = keras.Sequential([keras.Input((None, None, 3)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    before = [v.numpy() for v in layer.trainable_variables]
    model.fit(scenes, np.ones((4, 32, 48), "int32"), verbose=0)
    # Scores of attention do not change by the biases of keys.
    assert changed(before, layer.trainable_variables) >= len(segmenter.weights) - 3


@pytest.mark.long
def test_frozen_low_precision_and_rematerialized_models_can_be_trained(make_vit, images, tmp_path):
    same, model = make_vit(num_layers=1), make_vit(num_layers=1, dtype="bfloat16", remat=True)
    for layer in model.layers:
        layer.trainable = layer.name == "head"
    module = hub.load(str(export.to_hub(model, tmp_path / "m")))
    assert {v.dtype for v in module.trainable_variables} == {tf.float32}
    assert len(module.trainable_variables) == len(model.weights) > len(model.trainable_weights)
    for source, target in zip(model.weights, same.weights, strict=True):
        target.assign(keras.ops.cast(source, "float32"))
    np.testing.assert_allclose(module(images), answer(same, images), atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(module(images, training=True) ** 2)
    assert None not in tape.gradient(loss, module.trainable_variables)


@pytest.mark.long
def test_a_gradient_tape_trains_it_and_xla_agrees(model, directory, images, logits):
    module = hub.load(str(directory))

    def gradients(training):
        with tf.GradientTape() as tape:
            result = module(images, training=training)
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(TARGETS, result))
            loss += 1e-3 * tf.add_n([term() for term in module.regularization_losses])
        return [loss, result, *tape.gradient(loss, module.trainable_variables)]

    compiled = tf.function(gradients, jit_compile=True)(False)
    np.testing.assert_allclose(compiled[1], logits, atol=1e-5)
    assert len(compiled[2:]) == len(model.weights)
    for a, b in zip(compiled, gradients(False), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    losses = []
    for _ in range(5):
        loss, _, *found = gradients(True)
        for variable, gradient in zip(module.trainable_variables, found, strict=True):
            variable.assign_sub(0.1 * gradient)
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]


def fine_tune(directory, images, logits, targets):
    import tf_keras

    layer = hub.KerasLayer(str(directory), trainable=True)
    classifier = tf_keras.Sequential([tf_keras.Input((32, 32, 3)), layer])
    np.testing.assert_allclose(classifier.predict(images, verbose=0), logits, atol=1e-5)
    before = [v.numpy() for v in layer.trainable_variables]
    classifier.compile("adam", tf_keras.losses.CategoricalCrossentropy(from_logits=True))
    history = classifier.fit(images, targets, epochs=4, verbose=0).history["loss"]
    assert history[-1] < history[0]
    return len(before), changed(before, layer.trainable_variables)


def test_keras_layer_of_keras_2(model, directory, images, logits):
    assert fine_tune(directory, images, logits, TARGETS) == (len(model.weights), len(model.weights))


MIRRORED = """
import sys
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.export.hub.test_to_hub import fine_tune
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    variables, changed = fine_tune(sys.argv[1], **np.load(sys.argv[2]))
assert variables == changed > 0
"""


@pytest.mark.long
def test_mirrored_strategy_on_two_devices(directory, images, logits, tmp_path):
    np.savez(tmp_path / "data.npz", images=images, logits=logits, targets=TARGETS)
    command = [sys.executable, "-c", MIRRORED, str(directory), str(tmp_path / "data.npz")]
    subprocess.run(command, check=True, cwd=ROOT)


def test_tfsm_layer_of_keras_3(directory, images, logits):
    endpoints = {"call_endpoint": "serve", "call_training_endpoint": "serve_train"}
    layer = keras.layers.TFSMLayer(str(directory), **endpoints)
    np.testing.assert_allclose(layer(images), logits, atol=1e-5)
    assert np.abs(layer(images, training=True) - logits).max() > 1e-3


def around(*layers):
    return keras.Sequential([keras.Input((32, 32, 3)), *layers])


@pytest.mark.long
def test_hub_layer_trains_with_adamw(model, directory, images, logits, tmp_path):
    layer = export.HubLayer(directory)
    classifier = around(layer)
    np.testing.assert_allclose(classifier(images), logits, atol=1e-5)
    kernel = model.get_layer("head").kernel.numpy()
    assert float(classifier.losses[0]) == pytest.approx(0.5 * (kernel**2).sum(), rel=1e-5)
    before = [v.numpy() for v in layer.trainable_variables]
    assert len(before) == len(model.weights)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    classifier.compile(keras.optimizers.AdamW(3e-3), loss)
    history = classifier.fit(images, TARGETS, epochs=6, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert changed(before, layer.trainable_variables) == len(before)
    # The module's own variables moved, and so did its output.
    assert np.abs(classifier(images) - logits).max() > 1e-2
    classifier.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(images), classifier(images))


def test_hub_layer_frozen_and_beside_layers_of_mixed_precision(directory, images, logits, tmp_path):
    layer = export.HubLayer(directory, dtype="mixed_bfloat16", trainable=False)
    rescaling = keras.layers.Rescaling(1.0, dtype="mixed_bfloat16")
    for model, atol in ((around(layer), 1e-5), (around(rescaling, layer), 0.1)):
        np.testing.assert_allclose(model(images, training=True), logits, atol=atol)
        assert model.trainable_variables == [] and model.losses == []
        model.save(tmp_path / "m.keras")
        loaded = keras.saving.load_model(tmp_path / "m.keras")
        np.testing.assert_array_equal(loaded(images), model(images))
    tf.saved_model.save(around(layer), str(tmp_path / "saved"))
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    (served_logits,) = serve(tf.constant(images)).values()
    np.testing.assert_allclose(served_logits, logits, atol=1e-5)


@pytest.mark.parametrize("functional", [False, True])
def test_a_model_whose_module_is_elsewhere_says_so(directory, tmp_path, monkeypatch, functional):
    monkeypatch.chdir(directory.parent)
    model = around(export.HubLayer(directory.name))
    model = keras.Model(model.inputs, model.outputs) if functional else model
    model.save(tmp_path / "m.keras")
    assert keras.saving.load_model(tmp_path / "m.keras").layers[-1].handle == directory.name
    monkeypatch.chdir(tmp_path)
    missing = rf"There is none at {directory.name}, seen from {tmp_path}\. Change to the folder"
    with pytest.raises(
        FileNotFoundError, match=rf"^Expected the directory of a .*{missing}[^\n]+$"
    ):
        keras.saving.load_model(tmp_path / "m.keras")
    (tmp_path / directory.name).mkdir()
    with pytest.raises(ValueError, match=rf"^{directory.name} cannot be loaded as a TF-Hub[^\n]+$"):
        keras.saving.load_model(tmp_path / "m.keras")


def test_hub_layer_refuses_what_cannot_be_called(tmp_path):
    tf.saved_model.save(tf.train.Checkpoint(variables=[tf.Variable(1.0)]), str(tmp_path / "m"))
    with pytest.raises(ValueError, match="reusable SavedModel"):
        export.HubLayer(tmp_path / "m")


@pytest.mark.long
def test_tf1_graphs_as_vtab_builds_them(model, directory, images, logits):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        inputs = v1.placeholder(tf.float32, (None, 32, 32, 3))
        module = hub.load(str(directory))
        variables = v1.get_collection_ref(v1.GraphKeys.TRAINABLE_VARIABLES)
        variables.extend(module.trainable_variables)
        assert len(variables) == len(model.weights)
        inference, result = module(inputs, training=False), module(inputs, training=True)
        assert result.shape.as_list() == [None, 5]  # its head wants rank 2
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(TARGETS, result))
        step = v1.train.MomentumOptimizer(0.03, 0.9).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            feed = {inputs: images}
            np.testing.assert_allclose(session.run(inference, feed), logits, atol=1e-5)
            first, before = session.run([loss, list(variables)], feed)
            for _ in range(6):
                session.run(step, feed)
            last, after = session.run([loss, list(variables)], feed)
    assert last < first
    moved = sum(np.any(a != b) for a, b in zip(before, after, strict=True))
    assert moved >= len(before) - 1  # the bias of the keys cancels in the softmax


def test_an_archive_over_http(directory, images, logits, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    tar_gz.pack(directory, tmp_path / "site/publisher/digits/1")
    with served(tmp_path / "site") as address:
        module = hub.load(f"{address}publisher/digits/1")
    np.testing.assert_allclose(module(images), logits, atol=1e-5)
