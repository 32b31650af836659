"""Every format that is read, mutated: the answer is a result or one clear error."""

import gzip
import io
import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import export
import keras_vit
from export.hub import tar_archive
from export.labels import checked_labels
from export.sample_images import load_images
from export.tflite.inspection import TFLiteFile
from export.verification.runtimes.hub_module import HubModule
from keras_vit.photos import read_photo
from tests.run_config import DATA
from training import config_keys
from training.data import digits, load_dataset, open_dataset, records, splits, tfds_folder
from training.data.preprocessing.preprocess import Preprocess
from training.engines.tensorflow.tf_config import read_cluster
from training.engines.tensorflow.training_checkpoints import Checkpoints
from training.errors import TrainingError
from training.evaluators import features
from training.evaluators.exported_files import interface_of, labels_of
from training.evaluators.frozen_model import load_frozen
from training.evaluators.model_source import load_model, read_run_config, saved_arguments
from training.io.image_files import read_images
from training.io.paths import read_lines
from training.loop.run_directory import drop_events_after
from training.protocols.run_result import computed_once
from training.reporting import run_report
from training.reporting.read_metrics import read_metrics

# What a command prints as one line.
CLEAR = (ValueError, OSError, TrainingError)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(
        image_size=8,
        patch_size=4,
        hidden_size=8,
        mlp_dim=8,
        num_heads=1,
        num_layers=1,
        num_classes=2,
    )
    for weight in model.weights:
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    model.class_names = ["crow", "finch"]
    model.preprocessing = "decode|resize(8)|value_range(-1,1)"
    return model


@pytest.fixture
def reads(tmp_path):
    """Returns a function from a name and a reader of a path to a reader of bytes."""

    def reader(name, read):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)

        def read_bytes(content):
            file.write_bytes(content)
            return read(file)

        return read_bytes

    return reader


def stored_again(archive, change):
    """Returns a zip archive with the bytes of one member, the first, passed through `change`."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(result, "w") as new:
        for number, info in enumerate(old.infolist()):
            content = old.read(info)
            new.writestr(info.filename, content if number else change(content))
    return result.getvalue()


def test_npz(attack, reads, model, tmp_path):
    keras_vit.save_checkpoint(model, tmp_path / "good.npz")
    content = (tmp_path / "good.npz").read_bytes()
    read = reads("model.npz", lambda file: keras_vit.load_checkpoint(model, file))
    attack("npz", 100, content, read, CLEAR)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        first = archive.read(archive.infolist()[0])
    attack(
        "npz, a member's bytes",
        100,
        first,
        lambda changed: read(stored_again(content, lambda _: changed)),
        CLEAR,
    )


def test_safetensors_and_their_json(attack, reads, cases, golden, build_case, load_case, tmp_path):
    from safetensors.numpy import save

    case = cases["timm"]
    timm = build_case(case)
    read = reads("timm/model.safetensors", lambda file: load_case(timm, case, file))
    attack("safetensors", 60, save(golden.checkpoint(case)), read, CLEAR)

    case, folder = cases["hf"], tmp_path / "hf"
    arrays, hugging_face = golden.checkpoint(case), build_case(case)
    folder.mkdir()
    (folder / "part.safetensors").write_bytes(save(arrays))
    index = {"weight_map": dict.fromkeys(arrays, "part.safetensors")}
    config = {"model_type": "vit", "hidden_size": 48, "num_hidden_layers": 3}

    def load(_):
        load_case(hugging_face, case, folder)

    name = "hf/model.safetensors.index.json"
    attack("safetensors index", 60, json.dumps(index).encode(), reads(name, load), CLEAR)
    (tmp_path / name).write_text(json.dumps(index))
    content = json.dumps(config).encode()
    attack("safetensors config", 60, content, reads("hf/config.json", load), CLEAR)


def test_keras_files(attack, reads, model, tmp_path):
    model.save(tmp_path / "good.keras")
    content = (tmp_path / "good.keras").read_bytes()
    read = reads("model.keras", load_model)
    attack("keras", 12, content, read, CLEAR)
    load = reads("model.keras", lambda file: keras_vit.load_checkpoint(model, file))
    attack("keras, as a checkpoint", 6, content, load, CLEAR)
    arguments = reads("model.keras", saved_arguments)
    attack("keras, arguments", 40, content, arguments, CLEAR)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def with_config(changed):
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as new:
            for name, member in (members | {"config.json": changed}).items():
                new.writestr(name, member)
        read(result.getvalue())

    attack("keras, its config", 12, members["config.json"], with_config, CLEAR)


def test_files_of_a_run(attack, reads, tmp_path):
    config = config_keys.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    content = config_keys.to_json(config, DATA).encode()
    attack("config.json", 400, content, reads("config.json", read_run_config), CLEAR)
    rows = b"step,loss,eval_top1\r\n" + b"".join(b"%d,0.%d,\r\n" % (i, i) for i in range(50))
    attack("metrics.csv", 400, rows, reads("metrics.csv", read_metrics), CLEAR)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, labels=np.arange(200) % 3, num_classes=np.array(3))
    kept = reads("evaluation.npz", run_report.kept_evaluation)
    attack("evaluation.npz", 200, buffer.getvalue(), kept, CLEAR)


def test_what_protocols_keep(attack, reads, tmp_path):
    table = str(tmp_path / "some.tfrecord")
    result = json.dumps({"config": {}, "result": {"top1": 0.5, "count": 10}}).encode()
    read = reads("result.json", lambda file: computed_once(file, dict))
    attack("result.json", 200, result, read, CLEAR)
    buffer = io.BytesIO()
    np.savez(buffer, features=np.ones((20, 4), "float32"), labels=np.arange(20))
    read = reads("features.npz", features.kept)
    attack("cached features", 100, buffer.getvalue(), read, CLEAR)
    buffer = io.BytesIO()
    np.save(buffer, np.arange(50))
    read = reads("some.tfrecord.offsets.npy", lambda _: records._read_index(table, 49))
    attack("the index of records", 200, buffer.getvalue(), read, CLEAR)


def test_tensorboard_events(attack, reads, tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path / "events"))
    with writer.as_default():
        for step in range(20):
            tf.summary.write("loss", tf.constant(1.0), step=step)
    writer.close()
    (file,) = (tmp_path / "events").iterdir()
    read = reads("run/events.out.tfevents.1", lambda file: drop_events_after(file.parent, 10))
    attack("tensorboard events", 60, file.read_bytes(), read, CLEAR)


def test_checkpoints_of_a_run(attack, reads, tmp_path):
    def checkpoints():
        state = {"optimizer": keras.optimizers.SGD(0.1), "weights": tf.Variable(tf.zeros([500]))}
        return Checkpoints(tmp_path / "checkpoints", state), state

    first, state = checkpoints()
    state["optimizer"].iterations.assign(1)
    first.save()
    for name in ("checkpoint", "checkpoint-1.index", "checkpoint-1.data-00000-of-00001"):
        content = (tmp_path / "checkpoints" / name).read_bytes()
        read = reads(f"checkpoints/{name}", lambda _: checkpoints()[0].restore())
        attack(f"run's {name.partition('.')[2] or name}", 60, content, read, CLEAR)
        (tmp_path / "checkpoints" / name).write_bytes(content)


def test_checkpoints_of_jax(attack, reads, tmp_path):
    jax_checkpoints = pytest.importorskip("training.engines.jax.training_checkpoints")
    folder = tmp_path / "checkpoints"
    saver = jax_checkpoints.Checkpoints(folder)
    saver.save(1, {"numbers": {"a": np.ones(500)}})
    saver.wait()

    def newest(_):
        return jax_checkpoints.read_arrays(folder, jax_checkpoints.Checkpoints(folder).newest())

    for name in ("files.json", "_METADATA", "manifest.ocdbt"):
        file = folder / "checkpoint-1" / name
        content = file.read_bytes()
        read = reads(file.relative_to(tmp_path), newest)
        attack(f"run's {name} of JAX", 60, content, read, CLEAR)
        file.write_bytes(content)


def test_modules(attack, reads, model, tmp_path):
    directory = export.to_hub(model, tmp_path / "module", labels=["a", "b"])
    content = (directory / "saved_model.pb").read_bytes()
    load = reads("module/saved_model.pb", lambda file: HubModule(file.parent))
    attack("saved_model.pb", 2, content, load, CLEAR)
    load = reads("module/saved_model.pb", lambda file: load_frozen(file.parent))
    attack("saved_model.pb, predicting", 2, content, load, CLEAR)
    (directory / "saved_model.pb").write_bytes(content)
    for name, count in (("labels.txt", 60), ("interface.json", 200)):
        content = (directory / "assets" / name).read_bytes()
        texts = reads(f"module/assets/{name}", lambda file: exported(file.parents[1]))
        attack(f"hub's {name}", count, content, texts, CLEAR)
        (directory / "assets" / name).write_bytes(content)
    archive = tar_archive.pack(directory, tmp_path / "module.tar.gz").read_bytes()

    def unpack(file):
        with tar_archive.unpacked(file):
            pass

    attack("tar.gz", 100, archive, reads("mutated.tar.gz", unpack), CLEAR, size=2**20)
    tar = gzip.decompress(archive)
    read = reads("mutated.tar.gz", unpack)
    attack("tar", 60, tar, lambda changed: read(gzip.compress(changed, 1)), CLEAR, size=2**20)


def test_tflite(attack, reads, model, tmp_path):
    content = export.to_tflite(model, tmp_path / "good.tflite").read_bytes()
    attack("tflite, inspected", 200, content, reads("model.tflite", TFLiteFile), CLEAR)
    infer = reads("model.tflite", lambda file: load_frozen(file).logits(np.zeros((1, 8, 8, 3))))
    attack("tflite, predicting", 60, content, infer, CLEAR)
    texts = reads("model.tflite", exported)
    attack("tflite, its texts", 100, content, texts, CLEAR)
    attack("tflite, the end of its texts", 100, content[-600:], texts, CLEAR)


def exported(path):
    """Reads the texts inside of what is exported, as predicting does."""
    labels_of(path)
    Preprocess(interface_of(path).get("preprocessing") or "decode")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_images(kind, attack, reads):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    read = reads("image", lambda file: read_images([file], "decode|resize(8)"))
    attack(kind, 60, buffer.getvalue(), read, CLEAR, size=2**29)
    photo = reads("photo", read_photo)
    attack(f"{kind}, by Pillow", 60, buffer.getvalue(), photo, CLEAR, size=2**29)


def test_folders_and_arrays_of_images(attack, reads, tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, images=np.zeros((2, 8, 8, 3), "float32"), labels=np.zeros(2, int))
    read = reads("images.npz", lambda file: load_images(file, (8, 8)))
    attack("npz of images", 100, buffer.getvalue(), read, CLEAR)


def test_data_sets(attack, reads, tmp_path):
    digits.prepare(tmp_path)
    (info,) = tmp_path.rglob("dataset_info.json")
    content = info.read_bytes()
    name = info.relative_to(tmp_path)
    read = reads(name, lambda file: tfds_folder.read(file.parent))
    attack("dataset_info.json", 200, content, read, CLEAR)
    info.write_bytes(content)
    info.with_name("label.labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    for file in (info.with_name("features.json"), info.with_name("label.labels.txt")):
        content = file.read_bytes()
        read = reads(
            file.relative_to(tmp_path),
            lambda _: open_dataset("tfds:sklearn_digits", tmp_path),
        )
        attack(file.name, 200, content, read, CLEAR)
        file.write_bytes(content)
    file = sorted(tmp_path.rglob("*test.tfrecord*"))[0]

    def examples(_):
        for _ in load_dataset("digits", "test[:20]", data_dir=tmp_path):
            pass

    errors = (*CLEAR, tf.errors.OpError)
    read = reads(file.relative_to(tmp_path), examples)
    attack("tfrecords", 6, file.read_bytes(), read, errors)


def test_texts(attack, reads):
    def text(function):
        return lambda content: function(content.decode("utf-8", "replace"))

    operations = b"decode|inception_crop(8)|flip_lr|randaugment(2,15)|value_range(-1,1)|one_hot(10)"
    attack("preprocessing", 300, operations, text(Preprocess), CLEAR)
    attack(
        "splits",
        300,
        b"train[:98%]+validation[10:200]",
        text(lambda value: splits.resolve(value, {"train": 900, "validation": 300})),
        CLEAR,
    )
    job = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    cluster = text(lambda value: read_cluster({"TF_CONFIG": value}))
    attack("TF_CONFIG", 300, json.dumps(job).encode(), cluster, CLEAR)
    labels = text(lambda value: checked_labels(value.split("\n")[:3], 3))
    attack("labels", 300, b"crow\nfinch\njay\n", labels, CLEAR)
    attack("labels in a file", 100, b"crow\nfinch\njay\n", reads("labels.txt", read_lines), CLEAR)
