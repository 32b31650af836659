import functools
import gzip
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit import export
from keras_vit.export.hub import tar_gz
from keras_vit.export.run_export import load_images
from keras_vit.export.tflite.flatbuffer import TFLiteFile
from keras_vit.export.verification.runtimes import open_hub
from keras_vit.photos.prepare_photos import read_photo
from keras_vit.training import data, source_facts
from keras_vit.training.config import schema
from keras_vit.training.data import records
from keras_vit.training.data.preprocessing.preprocess import Preprocess, read_images
from keras_vit.training.data.sets import prepare_datasets, splits, tfds_folder
from keras_vit.training.engine import checkpoints
from keras_vit.training.engine.tensorflow import read_cluster
from keras_vit.training.evaluators import few_shot
from keras_vit.training.inference import interface as texts_of_exports
from keras_vit.training.inference.open_model import load_model, open_source
from keras_vit.training.io.paths import read_lines
from keras_vit.training.loop.run_directory import drop_events_after
from keras_vit.training.protocols.train_unless_finished import computed_once
from keras_vit.training.reporting.collect_run_results import kept_evaluation
from keras_vit.training.reporting.metrics_csv import read_metrics
from tests.tiny_vit import tiny_vit
from tests.training.runs import DATA


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
def attack_file(attack):
    """Returns a function that attacks what a file holds, at its place, and leaves it whole.

    Of a zip archive `member` is attacked, whose checksums are then right.
    """

    def run(name, count, file, read, *errors, member=None, size=0):
        whole = file.read_bytes()
        members = {}
        if member:
            with zipfile.ZipFile(file) as archive:
                members = {each: archive.read(each) for each in archive.namelist()}

        def read_changed(changed):
            if member:
                with zipfile.ZipFile(file, "w") as archive:
                    for each, content in (members | {member: changed}).items():
                        archive.writestr(each, content)
            else:
                file.write_bytes(changed)
            read(file)

        attack(name, count, members[member] if member else whole, read_changed, *errors, size=size)
        file.write_bytes(whole)

    return run


def test_npz(attack_file, model, tmp_path):
    file = tmp_path / "model.npz"
    keras_vit.save_checkpoint(model, file)
    load = functools.partial(keras_vit.load_checkpoint, model)
    attack_file("npz", 100, file, load)
    attack_file("npz, a member's bytes", 100, file, load, member="cls.npy")
    np.savez(file, images=np.zeros((2, 8, 8, 3), "float32"), labels=np.zeros(2, int))
    interface = texts_of_exports.Interface((8, 8))
    attack_file("npz of images", 100, file, lambda file: load_images(file, interface))


def test_safetensors(attack_file, cases, golden, build_case, load_case, write_case, tmp_path):
    case = cases["timm"]
    timm, file = build_case(case), write_case(case, tmp_path)
    attack_file("safetensors", 60, file, lambda file: load_case(timm, case, file))
    case, folder = cases["hf"], tmp_path / "hf"
    folder.mkdir()
    part, hugging_face = write_case(case, folder), build_case(case)
    index, config = folder / "model.safetensors.index.json", folder / "config.json"
    weight_map = dict.fromkeys(golden.checkpoint(case), part.name)
    index.write_text(json.dumps({"weight_map": weight_map}))
    config.write_text('{"model_type": "vit", "hidden_size": 48, "num_hidden_layers": 3}')
    for file in (index, config):
        attack_file(f"hf {file.name}", 60, file, lambda _: load_case(hugging_face, case, folder))


def test_keras_files(attack_file, model, tmp_path):
    file = tmp_path / "model.keras"
    model.save(file)
    attack_file("keras", 12, file, load_model)
    attack_file("keras, as a checkpoint", 6, file, lambda _: keras_vit.load_checkpoint(model, file))
    attack_file("keras, arguments", 40, file, source_facts.saved_arguments)
    attack_file("keras, its config", 12, file, load_model, member="config.json")


def test_files_of_a_run(attack_file, tmp_path):
    config = schema.complete({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    (tmp_path / "config.json").write_text(schema.to_json(config, DATA))
    rows = "".join(f"{step},0.{step},\r\n" for step in range(50))
    (tmp_path / "metrics.csv").write_text("step,loss,eval_top1\r\n" + rows)
    labels, classes = np.arange(200) % 3, np.array(3)
    np.savez_compressed(tmp_path / "evaluation.npz", labels=labels, num_classes=classes)
    result = {"config": {}, "result": {"score": 0.5, "count": 10}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    features = np.ones((20, 4), "float32")
    np.savez(tmp_path / "features.npz", features=features, labels=np.arange(20))
    np.save(tmp_path / "some.tfrecord.offsets.npy", 20 * np.arange(50))
    table = str(tmp_path / "some.tfrecord")
    for name, count, read in (
        ("config.json", 400, source_facts.read_run_config),
        ("metrics.csv", 400, read_metrics),
        ("evaluation.npz", 200, kept_evaluation),
        ("result.json", 200, lambda file: computed_once(file, dict)),
        ("features.npz", 100, few_shot.kept_features),
        ("some.tfrecord.offsets.npy", 200, lambda _: records._indexed(table, 980)),
    ):
        attack_file(name, count, tmp_path / name, read)


def test_events_and_checkpoints_of_a_run(attack_file, tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        for step in range(20):
            tf.summary.write("loss", tf.constant(1.0), step=step)
    writer.close()
    (file,) = tmp_path.iterdir()
    attack_file("tensorboard events", 60, file, lambda file: drop_events_after(file.parent, 10))
    saver = checkpoints.Checkpoints(tmp_path)
    saver.save(1, lambda: {"weights": checkpoints.whole(np.ones(500))})
    saver.wait()

    def read_newest(_):
        read_step(None, checkpoints.Checkpoints(tmp_path).newest())

    def read_step(_, step=1):
        checkpoints.read(tmp_path, step)["weights"].read()

    for name in ("manifest.json", "part-0.safetensors"):
        for read in (read_newest, read_step):
            attack_file(f"run's {name}", 60, tmp_path / "checkpoint-1" / name, read)


def test_modules(attack_file, attack, model, tmp_path):
    directory = export.to_hub(model, tmp_path / "module", labels=["a", "b"])
    for name, load in (("saved_model.pb", open_hub), ("saved_model.pb, predicting", open_source)):
        attack_file(name, 2, directory / "saved_model.pb", lambda _, load=load: load(directory))
    for name, count in (("labels.txt", 60), ("interface.json", 200)):
        file = directory / "assets" / name
        attack_file(f"hub's {name}", count, file, lambda _: exported(directory))
    archive = tar_gz.pack(directory, tmp_path / "module.tar.gz")
    tar = gzip.decompress(archive.read_bytes())

    def unpack(file):
        with tar_gz.unpacked(file):
            pass

    def unpack_changed(changed):
        archive.write_bytes(gzip.compress(changed, 1))
        unpack(archive)

    attack_file("tar.gz", 100, archive, unpack, size=2**20)
    attack("tar", 60, tar, unpack_changed, size=2**20)


def test_tflite(attack_file, attack, model, tmp_path):
    def predict(file):
        open_source(file)(np.zeros((1, 8, 8, 3)))

    def read_end(changed):
        file.write_bytes(changed)
        exported(file)

    file = export.to_tflite(model, tmp_path / "model.tflite")
    attack_file("tflite, inspected", 200, file, TFLiteFile)
    attack_file("tflite, predicting", 60, file, predict)
    attack_file("tflite, its texts", 100, file, exported)
    attack("tflite, the end of its texts", 100, file.read_bytes()[-600:], read_end)


def exported(path):
    texts_of_exports.labels_of(path)
    Preprocess(texts_of_exports.interface_of(path).get("preprocessing") or "decode")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"])
def test_images(kind, attack_file, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image", kind)
    prepare = functools.partial(read_images, preprocess="decode|resize(8)|value_range")
    attack_file(kind, 60, tmp_path / "image", lambda file: prepare([file]), size=2**29)
    attack_file(f"{kind}, by Pillow", 60, tmp_path / "image", read_photo, size=2**29)


def test_data_sets(attack_file, tmp_path):
    prepare_datasets.prepare_embedded("sklearn_digits", tmp_path)
    (info,) = tmp_path.rglob("dataset_info.json")
    attack_file(info.name, 200, info, lambda file: tfds_folder.read_info(file.parent))
    labels = info.with_name("label.labels.txt")
    labels.write_text("".join(f"{digit}\n" for digit in range(10)))
    opened = functools.partial(data.open_dataset, "tfds:sklearn_digits", tmp_path)
    for file in (info.with_name("features.json"), labels):
        attack_file(file.name, 200, file, lambda _: opened())
    file = min(tmp_path.rglob("*test.tfrecord*"))
    read = functools.partial(data.load_dataset, "digits", "test[:20]", data_dir=tmp_path)
    attack_file("tfrecords", 6, file, lambda _: [*read()], tf.errors.OpError)


def test_texts(attack, attack_file, model, tmp_path):
    def attack_text(name, text, read):
        attack(name, 300, text.encode(), lambda content: read(content.decode("utf-8", "replace")))

    operations = "decode|inception_crop(8)|flip_lr|randaugment(2,15)|value_range(-1,1)|one_hot(10)"
    attack_text("preprocessing", operations, Preprocess)
    sizes = {"train": 900, "validation": 300}
    split = "train[:98%]+validation[10:200]"
    attack_text("splits", split, lambda text: splits.resolve(text, sizes))
    job = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    attack_text("TF_CONFIG", json.dumps(job), lambda text: read_cluster({"TF_CONFIG": text}))
    labels = "crow\nfinch\n"
    of_export = texts_of_exports.Interface.of_export
    attack_text("labels", labels, lambda text: of_export(model, "logits", text.split("\n")[:2]))
    (tmp_path / "labels.txt").write_text(labels + "jay\n")
    attack_file("labels in a file", 100, tmp_path / "labels.txt", read_lines)
