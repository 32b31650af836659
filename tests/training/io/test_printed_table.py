"""Tables as text."""

from keras_vit.training.io.printed_table import Table

TABLE = Table(("class", "recall %", "confused"), [("cat|dog", "75.00", "owl"), ("x", "–", "")], "T")


def test_markdown_escapes_bars_and_aligns_numbers():
    assert TABLE.markdown().splitlines() == [
        "### T",
        "",
        "| class | recall % | confused |",
        "| --- | ---: | --- |",
        r"| cat\|dog | 75.00 | owl |",
        "| x | – |  |",
    ]


def test_csv():
    assert TABLE.csv() == "class,recall %,confused\ncat|dog,75.00,owl\nx,–,\n"


def test_a_spreadsheet_runs_no_formula_of_a_name():
    names = ["@x", "+cmd", "-2+3+cmd|' /C calc'!A0", "-1.5", "+0.1 %", "-1e-05", -2]
    written = Table(("=1+1",), [(name,) for name in names]).csv().splitlines()
    formulas = ["'=1+1", "'@x", "'+cmd", "'-2+3+cmd|' /C calc'!A0"]
    assert written == [*formulas, "-1.5", "+0.1 %", "-1e-05", "-2"]


def test_show_prints_every_cell_on_one_line(capsys):
    long = "runs/" + "a" * 100
    Table(("model", "top-1 %"), [(long, "50.00 ± 1.00")]).show()
    lines = capsys.readouterr().out.splitlines()
    assert sum(long in line and "50.00 ± 1.00" in line for line in lines) == 1
