"""The sweep from the command line."""

from training.commands import sweep as command
from training.configs import finetune
from training.protocols import learning_rate_sweep
from training.protocols.run_result import RunResult


def test_command_takes_rates_from_table_4(monkeypatch, tmp_path, capsys):
    asked = []

    def train_run(config, workdir):
        asked.append((workdir.name, config.train_split, config.optimizer.base_lr, config.seed))
        return RunResult(config.optimizer.base_lr, 1.0, 0.1, 100)

    monkeypatch.setattr(learning_rate_sweep, "train_run", train_run)
    arguments = [
        f"--config={finetune.__file__}:ViT-L/16,cifar100",
        f"--workdir={tmp_path}",
        "--seeds=0",
        "--config.batch_size=8",
    ]
    assert command.main(arguments) == 0
    assert asked == [
        *((f"lr_{rate}", "train[:98%]", rate, 0) for rate in (0.001, 0.003, 0.01, 0.03)),
        ("seed_0", "train", 0.03, 0),
    ]
    printed = capsys.readouterr().out
    assert "Table 2, JFT-300M" in printed and "93.90 ± 0.05" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.md", "sweep.csv", "sweep.png"}

    assert command.main([*arguments, "--config.eval_split="]) == 2
    assert "eval_split" in capsys.readouterr().err
