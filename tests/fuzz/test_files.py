"""Every format that is read, mutated: the answer is a result or one clear error."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import export
from keras_vit.export.hub import archives
from keras_vit.export.labels_and_interface_json import labels_of_model
from keras_vit.export.source_and_images import load_images
from keras_vit.export.tflite.flatbuffer_and_metadata import TFLiteFile
from keras_vit.export.verification.runtimes import open_hub
from keras_vit.prepare_photos import read_photo
from keras_vit.training.config import schema
from keras_vit.training.data import (
    load_dataset,
    open_dataset,
    prepare,
    records,
    splits,
    tfds_folder,
)
from keras_vit.training.data.preprocessing.preprocess import Preprocess, read_images
from keras_vit.training.engine import checkpoints
from keras_vit.training.engine.tensorflow import read_cluster
from keras_vit.training.evaluators.exported_files import interface_of, labels_of
from keras_vit.training.evaluators.few_shot import kept_features
from keras_vit.training.evaluators.frozen_model import load_frozen
from keras_vit.training.evaluators.model_from_source import (
    load_model,
    read_run_config,
    saved_arguments,
)
from keras_vit.training.io.paths import read_lines
from keras_vit.training.loop.run_directory import drop_events_after
from keras_vit.training.protocols.run_result import computed_once
from keras_vit.training.reporting.metrics_csv import read_metrics
from keras_vit.training.reporting.report_from_run_directory import kept_evaluation
from tests.run_config import DATA
from tests.tiny_vit import tiny_vit


@pytest.fixture(scope="module")
def model():
    small = {"image_size": 8, "hidden_size": 8, "mlp_dim": 8, "num_heads": 1, "num_layers": 1}
    model = tiny_vit(**small, num_classes=2)
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


@pytest.fixture
def attack_member(attack):
    """Returns a function that attacks a member of a zip archive, whose checksums are then right."""

    def run(name, count, member, archive, read):
        with zipfile.ZipFile(io.BytesIO(archive)) as old:
            members = {each: old.read(each) for each in old.namelist()}

        def read_changed(changed):
            result = io.BytesIO()
            with zipfile.ZipFile(result, "w") as new:
                for each, content in (members | {member: changed}).items():
                    new.writestr(each, content)
            read(result.getvalue())

        attack(name, count, members[member], read_changed)

    return run


def test_npz(attack, attack_member, reads, model, tmp_path):
    keras_vit.save_checkpoint(model, tmp_path / "good.npz")
    content = (tmp_path / "good.npz").read_bytes()
    read = reads("model.npz", lambda file: keras_vit.load_checkpoint(model, file))
    attack("npz", 100, content, read)
    attack_member("npz, a member's bytes", 100, "cls.npy", content, read)


def test_safetensors_and_their_json(attack, reads, cases, golden, build_case, load_case, tmp_path):
    from safetensors.numpy import save

    case = cases["timm"]
    timm = build_case(case)
    read = reads("timm/model.safetensors", lambda file: load_case(timm, case, file))
    attack("safetensors", 60, save(golden.checkpoint(case)), read)

    case, folder = cases["hf"], tmp_path / "hf"
    arrays, hugging_face = golden.checkpoint(case), build_case(case)
    folder.mkdir()
    (folder / "part.safetensors").write_bytes(save(arrays))
    index = {"weight_map": dict.fromkeys(arrays, "part.safetensors")}
    config = {"model_type": "vit", "hidden_size": 48, "num_hidden_layers": 3}

    def load(_):
        load_case(hugging_face, case, folder)

    name = "hf/model.safetensors.index.json"
    attack("safetensors index", 60, json.dumps(index).encode(), reads(name, load))
    (tmp_path / name).write_text(json.dumps(index))
    content = json.dumps(config).encode()
    attack("safetensors config", 60, content, reads("hf/config.json", load))


def test_keras_files(attack, attack_member, reads, model, tmp_path):
    model.save(tmp_path / "good.keras")
    content = (tmp_path / "good.keras").read_bytes()
    read = reads("model.keras", load_model)
    attack("keras", 12, content, read)
    load = reads("model.keras", lambda file: keras_vit.load_checkpoint(model, file))
    attack("keras, as a checkpoint", 6, content, load)
    arguments = reads("model.keras", saved_arguments)
    attack("keras, arguments", 40, content, arguments)
    attack_member("keras, its config", 12, "config.json", content, read)


def test_files_of_a_run(attack, reads, tmp_path):
    config = schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    content = schema.to_json(config, DATA).encode()
    attack("config.json", 400, content, reads("config.json", read_run_config))
    rows = b"step,loss,eval_top1\r\n" + b"".join(b"%d,0.%d,\r\n" % (i, i) for i in range(50))
    attack("metrics.csv", 400, rows, reads("metrics.csv", read_metrics))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, labels=np.arange(200) % 3, num_classes=np.array(3))
    kept = reads("evaluation.npz", kept_evaluation)
    attack("evaluation.npz", 200, buffer.getvalue(), kept)


def test_what_protocols_keep(attack, reads, tmp_path):
    table = str(tmp_path / "some.tfrecord")
    result = json.dumps({"config": {}, "result": {"top1": 0.5, "count": 10}}).encode()
    read = reads("result.json", lambda file: computed_once(file, dict))
    attack("result.json", 200, result, read)
    buffer = io.BytesIO()
    np.savez(buffer, features=np.ones((20, 4), "float32"), labels=np.arange(20))
    read = reads("features.npz", kept_features)
    attack("cached features", 100, buffer.getvalue(), read)
    buffer = io.BytesIO()
    np.save(buffer, 20 * np.arange(50))
    read = reads("some.tfrecord.offsets.npy", lambda _: records._indexed(table, 980))
    attack("the index of records", 200, buffer.getvalue(), read)


def test_tensorboard_events(attack, reads, tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path / "events"))
    with writer.as_default():
        for step in range(20):
            tf.summary.write("loss", tf.constant(1.0), step=step)
    writer.close()
    (file,) = (tmp_path / "events").iterdir()
    read = reads("run/events.out.tfevents.1", lambda file: drop_events_after(file.parent, 10))
    attack("tensorboard events", 60, file.read_bytes(), read)


def test_checkpoints_of_a_run(attack, reads, tmp_path):
    folder = tmp_path / "checkpoints"
    saver = checkpoints.Checkpoints(folder)
    saver.save(1, lambda: {"weights": checkpoints.whole(np.ones(500))})
    saver.wait()

    def read_step(step):
        return checkpoints.read(folder, step)["weights"].read()

    for name in ("manifest.json", "part-0.safetensors"):
        file = folder / "checkpoint-1" / name
        content = file.read_bytes()
        for read in (
            lambda _: read_step(checkpoints.Checkpoints(folder).newest()),
            lambda _: read_step(1),
        ):
            attack(f"run's {name}", 60, content, reads(file.relative_to(tmp_path), read))
            file.write_bytes(content)


def test_modules(attack, reads, model, tmp_path):
    directory = export.to_hub(model, tmp_path / "module", labels=["a", "b"])
    content = (directory / "saved_model.pb").read_bytes()
    load = reads("module/saved_model.pb", lambda file: open_hub(file.parent))
    attack("saved_model.pb", 2, content, load)
    load = reads("module/saved_model.pb", lambda file: load_frozen(file.parent))
    attack("saved_model.pb, predicting", 2, content, load)
    (directory / "saved_model.pb").write_bytes(content)
    for name, count in (("labels.txt", 60), ("interface.json", 200)):
        content = (directory / "assets" / name).read_bytes()
        texts = reads(f"module/assets/{name}", lambda file: exported(file.parents[1]))
        attack(f"hub's {name}", count, content, texts)
        (directory / "assets" / name).write_bytes(content)
    archive = archives.pack(directory, tmp_path / "module.tar.gz").read_bytes()

    def unpack(file):
        with archives.unpacked(file):
            pass

    read = reads("mutated.tar.gz", unpack)
    attack("tar.gz", 100, archive, read, size=2**20)
    tar = gzip.decompress(archive)
    attack("tar", 60, tar, lambda changed: read(gzip.compress(changed, 1)), size=2**20)


def test_tflite(attack, reads, model, tmp_path):
    content = export.to_tflite(model, tmp_path / "good.tflite").read_bytes()
    attack("tflite, inspected", 200, content, reads("model.tflite", TFLiteFile))
    infer = reads("model.tflite", lambda file: load_frozen(file).logits(np.zeros((1, 8, 8, 3))))
    attack("tflite, predicting", 60, content, infer)
    texts = reads("model.tflite", exported)
    attack("tflite, its texts", 100, content, texts)
    attack("tflite, the end of its texts", 100, content[-600:], texts)


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
    read = reads("image", lambda file: read_images([file], "decode|resize(8)|value_range"))
    attack(kind, 60, buffer.getvalue(), read, size=2**29)
    photo = reads("photo", read_photo)
    attack(f"{kind}, by Pillow", 60, buffer.getvalue(), photo, size=2**29)
    if kind == "JPEG":
        buffer = io.BytesIO()
        np.savez(buffer, images=np.zeros((2, 8, 8, 3), "float32"), labels=np.zeros(2, int))
        read = reads("images.npz", lambda file: load_images(file, (8, 8)))
        attack("npz of images", 100, buffer.getvalue(), read)


def test_data_sets(attack, reads, tmp_path):
    prepare.prepare_digits(tmp_path)
    (info,) = tmp_path.rglob("dataset_info.json")
    content = info.read_bytes()
    name = info.relative_to(tmp_path)
    read = reads(name, lambda file: tfds_folder.read_info(file.parent))
    attack("dataset_info.json", 200, content, read)
    info.write_bytes(content)
    info.with_name("label.labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    for file in (info.with_name("features.json"), info.with_name("label.labels.txt")):
        content = file.read_bytes()
        read = reads(
            file.relative_to(tmp_path),
            lambda _: open_dataset("tfds:sklearn_digits", tmp_path),
        )
        attack(file.name, 200, content, read)
        file.write_bytes(content)
    file = sorted(tmp_path.rglob("*test.tfrecord*"))[0]

    def examples(_):
        for _ in load_dataset("digits", "test[:20]", data_dir=tmp_path):
            pass

    read = reads(file.relative_to(tmp_path), examples)
    attack("tfrecords", 6, file.read_bytes(), read, tf.errors.OpError)


def test_texts(attack, reads, model):
    def text(function):
        return lambda content: function(content.decode("utf-8", "replace"))

    operations = b"decode|inception_crop(8)|flip_lr|randaugment(2,15)|value_range(-1,1)|one_hot(10)"
    attack("preprocessing", 300, operations, text(Preprocess))
    attack(
        "splits",
        300,
        b"train[:98%]+validation[10:200]",
        text(lambda value: splits.resolve(value, {"train": 900, "validation": 300})),
    )
    job = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    cluster = text(lambda value: read_cluster({"TF_CONFIG": value}))
    attack("TF_CONFIG", 300, json.dumps(job).encode(), cluster)
    labels = text(lambda value: labels_of_model(value.split("\n")[:2], model, "logits"))
    attack("labels", 300, b"crow\nfinch\n", labels)
    attack("labels in a file", 100, b"crow\nfinch\njay\n", reads("labels.txt", read_lines))
