import logging

import tensorflow as tf

from keras_vit.training.io import progress_bar
from keras_vit.training.io.printed_table import Table


def test_tables_are_the_same_in_markdown_in_csv_and_on_a_terminal(capsys):
    rows = [("cat|dog", "75.00", "owl"), ("x", "–", "")]
    table = Table(("class", "recall %", "confused"), rows, "T")
    expected = "### T\n\n| class | recall % | confused |\n| --- | ---: | --- |\n"
    assert table.markdown() == f"{expected}| cat\\|dog | 75.00 | owl |\n| x | – |  |\n"
    assert table.csv() == "class,recall %,confused\ncat|dog,75.00,owl\nx,–,\n"
    # A spreadsheet runs no formula of a name.
    names = ["@x", "+cmd", "-2+3+cmd|' /C calc'!A0", "-1.5", "+0.1 %", "-1e-05", -2]
    written = Table(("=1+1",), [(name,) for name in names]).csv().splitlines()
    formulas = ["'=1+1", "'@x", "'+cmd", "'-2+3+cmd|' /C calc'!A0"]
    assert written == [*formulas, "-1.5", "+0.1 %", "-1e-05", "-2"]
    # Every cell is shown on one line.
    long = "runs/:cat:" + "a" * 100  # no emoji
    Table(("model", "top-1 %"), [(long, "50.00 ± 1.00"), ("\033[31mred", "")]).show()
    assert "?[31mred" in (printed := capsys.readouterr().out)
    assert sum(long in line and "50.00 ± 1.00" in line for line in printed.splitlines()) == 1


def test_progress_is_a_line_of_a_log_now_and_then_and_a_bar_on_a_terminal(monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="keras_vit")
    track = progress_bar.track
    assert list(track(range(5), "counting")) == [0, 1, 2, 3, 4] and not caplog.messages
    monkeypatch.setattr(progress_bar, "LOG_EVERY_SECONDS", -1.0)
    dataset = tf.data.Dataset.range(2)
    assert [int(item) for item in track(dataset, "counting")] == [0, 1]
    odd = dataset.filter(lambda item: item % 2 == 1)
    assert [int(item) for item in track(odd, "counting")] == [1]
    assert caplog.messages == ["counting: 0 of 2", "counting: 1 of 2", "counting: 0"]
    monkeypatch.setattr(progress_bar.sys.stderr, "isatty", lambda: True)
    assert list(track(range(3), "counting")) == [0, 1, 2]
