"""Examples of docs/extend.md in an environment of their packages, which has none of this one."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "extend.md"


@pytest.mark.parametrize("package", ["wandb", "mlflow"])
def test_loggers_of_other_packages(package, tmp_path, monkeypatch):
    module = pytest.importorskip(package, reason="see `make test-cluster`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    examples, names = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL), {}
    exec(next(each for each in examples if f"import {package}" in each), names)
    log = names[f"{package}_logger"]("runs/mine", {"batch_size": 64})
    for step in (50, 100):
        log(step, {"loss": 1 / step})
    if package == "wandb":
        module.finish()
        (file,) = tmp_path.rglob("run-runs-mine.wandb")
        assert file.read_bytes().count(b"loss") >= 2
    else:
        run = module.active_run().info.run_id
        history = module.MlflowClient().get_metric_history(run, "loss")
        assert [(each.step, each.value) for each in history] == [(50, 0.02), (100, 0.01)]
        module.end_run()
