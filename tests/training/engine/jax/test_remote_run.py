"""One walk through a store on JAX: training that is killed and resumed, predictions, exports."""

import pathlib
import signal

import pyarrow.parquet
import pytest

from tests.training.runs import finish, rows

pytest.importorskip("jax", reason="make test-jax installs it")

SCRIPT = pathlib.Path(__file__).parents[2] / "processes" / "in_bucket.py"
RUN, DATA = "ram://bucket/run", "--data_dir=ram://bucket/tfds"
STEPS = "--config.total_steps=60"


@pytest.mark.long
def test_from_training_to_export(
    launch, train_command, jax_environment, final_state, assert_same, tmp_path
):
    expected, bucket = tmp_path / "expected", tmp_path / "bucket"
    # Where a killed process leaves its copy of the run.
    on_jax = jax_environment() | {"TMPDIR": str(tmp_path)}
    finish(launch(*train_command(expected, STEPS), environment=on_jax))

    (config,) = [each for each in train_command(RUN) if each.startswith("--config=")]
    train = [
        "keras_vit.training.commands.train",
        config,
        f"--workdir={RUN}",
        DATA,
        STEPS,
        "--config.report",
    ]
    # At the fourth, while the state of step 30 is written; that of step 20 may be on its way.
    finish(launch(SCRIPT, bucket, 4, *train, environment=on_jax), status=-signal.SIGKILL)
    states = {path.name for path in (bucket / "run" / "checkpoints").iterdir()}
    assert "checkpoint-10" in states and "checkpoint-30" not in states
    assert not (bucket / "run" / "model.keras").exists()

    data = ["--dataset=digits", DATA]
    evaluate = ["keras_vit.training.commands.evaluate", RUN, *data, "--output=ram://bucket/scores"]
    predict = ["keras_vit.training.commands.predict", RUN, *data, "--split=test[:50]"]
    predict += ["--shards=ram://bucket/shards", "--shard_size=20"]
    finish(launch(SCRIPT, bucket, 0, *train, "+", *evaluate, "+", *predict, environment=on_jax))
    assert_same(final_state(bucket / "run"), final_state(expected))
    assert rows(bucket / "run") == rows(expected)
    assert "top1" in (bucket / "scores" / "metrics.json").read_text()
    assert (bucket / "run" / "report.html").exists()
    assert pyarrow.parquet.read_table(bucket / "shards").num_rows == 50

    count = ["--count=20"]
    words = []
    for command, name in (("hub", "module"), ("tflite", "digits.tflite")):
        artifact = f"ram://bucket/{name}"
        words += [f"keras_vit.export.commands.{command}", RUN, f"--output={artifact}", *count, "+"]
        words += ["keras_vit.export.commands.verify", artifact, f"--against={RUN}", *count, "+"]
    environment = {"KERAS_BACKEND": "tensorflow"}
    finish(launch(SCRIPT, bucket, 0, *words[:-1], environment=environment))
    assert (bucket / "module" / "saved_model.pb").exists()
    assert (bucket / "digits.tflite").exists()
