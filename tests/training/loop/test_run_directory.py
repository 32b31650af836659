"""A resumed run shows every step once."""

import tensorflow as tf

from keras_vit.training.loop.run_directory import drop_events_after


def write(folder, steps):
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in steps:
            tf.summary.write("loss", tf.constant(step / 2), step=step)
    writer.close()


def steps_of(folder):
    return sorted(
        event.step
        for file in folder.glob("events*")
        for record in tf.data.TFRecordDataset(str(file))
        if (event := tf.compat.v1.Event.FromString(record.numpy())).summary.value
    )


def test_events_after_the_step_are_dropped(tmp_path):
    drop_events_after(tmp_path / "tensorboard", 0)
    assert not (tmp_path / "tensorboard").exists()
    write(tmp_path, [10, 20, 30, 40])
    drop_events_after(tmp_path, 20)
    assert steps_of(tmp_path) == [10, 20]
    write(tmp_path, [30, 40, 50])
    drop_events_after(tmp_path, 40)
    assert steps_of(tmp_path) == [10, 20, 30, 40]


def test_half_an_event_goes_and_whole_files_stay_as_they_are(tmp_path, caplog):
    write(tmp_path, [10, 20])
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    for left in (content, content + content[-30:-7]):
        file.write_bytes(left)
        drop_events_after(tmp_path, 20)
        assert file.read_bytes() == content
    caplog.clear()
    file.write_bytes(content[:-5])
    drop_events_after(tmp_path, 20)
    assert steps_of(tmp_path) == [10] and not caplog.messages
    assert list(tmp_path.iterdir()) == [file]
    damaged = bytearray(file.read_bytes())
    damaged[-5] ^= 1
    file.write_bytes(damaged)
    drop_events_after(tmp_path, 20)
    assert f"{file} is damaged: TensorBoard loses what follows its first 1 events" in caplog.text
