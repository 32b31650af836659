"""What the command says at its end."""

import pytest

from training.commands.train import main
from training.loop import trainer


@pytest.mark.parametrize("report", [True, False])
def test_names_the_files_that_there_are(report, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(trainer, "train", lambda config, workdir: None)
    assert main(["--config=quickstart", f"--workdir={tmp_path}", f"--config.report={report}"]) == 0
    page = f", its page in {tmp_path}/report.html" if report else ""
    assert capsys.readouterr().out == f"The model is in {tmp_path}/model.keras{page}\n"
