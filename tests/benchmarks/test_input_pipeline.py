import numpy as np
import pytest
import tensorflow as tf

from benchmarks import input_pipeline
from benchmarks.libraries.image_pipelines import FLOOR, pipelines

NAMES = [f"{kind}: {name}" for kind, makers in pipelines().items() for name in makers]


@pytest.mark.long
def test_the_table_compares_every_pipeline(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for number in range(4):
        image = rng.integers(0, 256, (60, 80, 3)).astype(np.uint8)
        (tmp_path / f"{number}.JPEG").write_bytes(tf.io.encode_jpeg(image).numpy())
    output = tmp_path / "table.md"
    arguments = ["--batch_size=4", "--batches=2", "--rounds=1", f"--output={output}"]
    assert input_pipeline.main([f"--images={tmp_path}", *arguments]) == 0
    printed = capsys.readouterr().out
    assert output.read_text() == printed
    rates, changes = printed.split("| reduced decoding |")
    # These images are smaller than the target, so that there is nothing to reduce.
    assert [line.split("|")[2:4] for line in changes.splitlines()[2:5]] == [[" 0.00 "] * 2] * 3
    rows = [line.split("|") for line in rates.splitlines() if line.startswith("| ")]
    assert [row[1].strip() for row in rows[2:]] == NAMES
    for row in rows[2:]:
        assert float(row[2]) > 0
        # A row is compared with itself in its own column.
        if row[1].strip().endswith(FLOOR):
            assert float(row[4]) == 1.0
    assert "4 images, batches of 4, 224 pixels, 1 rounds" in printed


def test_ratios_are_medians_within_rounds():
    turns = {name: [(1.0, 2.0)] * 3 for name in NAMES}
    turns["training: ours"] = [(2.0, 4.0), (4.0, 8.0), (1.6, 1.0)]
    (line,) = (
        line for line in input_pipeline.report(turns).splitlines() if "training: ours " in line
    )
    assert [cell.strip() for cell in line.split("|")][2:7] == [
        "0",
        "0",
        "0.50",
        "0.50",
        "0.38 to 0.56",
    ]


def test_a_folder_without_jpegs_is_explained(tmp_path, capsys):
    with pytest.raises(SystemExit):
        input_pipeline.main([f"--images={tmp_path}"])
    assert "expected JPEGs below" in capsys.readouterr().err
