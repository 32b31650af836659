"""Every command by each of its names, in a process of its own, in a folder of its own."""

import pathlib

import pytest

from keras_vit import training
from keras_vit.export.__main__ import COMMANDS as EXPORTS
from keras_vit.export.__main__ import main as export_main
from keras_vit.installation import __version__
from keras_vit.training.__main__ import COMMANDS, main
from keras_vit.training.command_options import CommandParser
from keras_vit.training.config import default_config
from keras_vit.training.config.overrides import config_of
from keras_vit.training.config.schema import KEYS
from keras_vit.training.errors import UsageError
from keras_vit.training.loop import trainer

ROOT = pathlib.Path(__file__).parents[3]
HELP = """
import contextlib, io, sys
from keras_vit.training.__main__ import main
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            status = main([name, "--help"])
        except SystemExit as exit:
            status = exit.code
    assert not status and shown.getvalue().startswith(f"usage: keras-vit {name} "), name
    assert "--debug" in shown.getvalue(), name
    assert not {"tensorflow", "keras", "matplotlib"} & set(sys.modules), name
"""


def test_help_needs_no_tensorflow(run_command, tmp_path):
    result = run_command(HELP, *COMMANDS, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "main, name",
    [(main, name) for name in COMMANDS] + [(export_main, name) for name in EXPORTS],
)
def test_debug_shows_the_traceback_before_the_line(main, name, capsys, monkeypatch):
    monkeypatch.delenv("VIT_DEBUG", raising=False)
    assert main([name, "--unknown"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1
    assert main([name, "--unknown", "--debug"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n") and shown.endswith(line)
    monkeypatch.setenv("VIT_DEBUG", "1")
    assert main(["--debug", name, "--unknown"]) == main([name, "--unknown"]) == 2
    assert capsys.readouterr().err == 2 * shown


@pytest.mark.parametrize(
    "name, option, expected",
    [
        ("sweep", "--development=1", "a share above 0 and below 1. Received: 1."),
        ("predict", "--top=0", "at least 1. Received: 0."),
        ("few_shot", "--seeds=1,1", "each once. Received: 1,1."),
        ("sweep", "--rates=0.001,0.00100000001", "each once. Received: 0.001,0.00100000001."),
        ("few_shot", "--l2=nan", "finite, at least 0. Received: nan."),
        ("sweep", "--rates=0.1,0", "finite, above 0. Received: 0."),
        ("web", "--examples=-3", "at least 0. Received: -3."),
    ],
)
def test_senseless_numbers_are_refused(name, option, expected, capsys):
    run = export_main if name in EXPORTS else main
    assert run([*name.split(), option]) == 2
    message = f"error: argument {option.partition('=')[0]}: expected {expected} See "
    assert capsys.readouterr().err.startswith(message)


def test_help_names_every_command_and_key_and_the_version(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in COMMANDS)
    words = " ".join([*COMMANDS, "export"])
    assert f'complete -o default -W "{words}" keras-vit' in (ROOT / "README.md").read_text()
    with pytest.raises(SystemExit):
        main(["--helpfull"])
    # Nothing is cut where the output is a pipe.
    shown = capsys.readouterr().out
    assert all(f" {key.name} " in shown and f" {key.default} " in shown for key in KEYS)
    for each in (main, export_main):
        assert each(["--version"]) == 0
        assert capsys.readouterr().out == f"keras-vit {__version__}\n"


@pytest.mark.parametrize("report", [True, False])
def test_training_names_the_files_that_there_are(report, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(trainer, "train", lambda config, workdir: None)
    assert main(["--config=quickstart", f"--workdir={tmp_path}", f"--config.report={report}"]) == 0
    page = f", its page in {tmp_path}/report.html" if report else ""
    assert capsys.readouterr().out == f"The model is in {tmp_path}/model.keras{page}\n"


@pytest.mark.parametrize(
    "words, expected",
    [
        (["Predict"], "Did you mean predict? Expected a command, one of train, predict, evaluate"),
        (["exprot"], "Did you mean export? Expected a command"),
        ([], "Expected a command"),
        (
            ["data", "chek", "cifar10"],
            "argument command: Did you mean check? Expected one of list,",
        ),
        (["data", "check", "x", "--data_dri=x"], "Did you mean --data_dir? Received: --data_dri."),
        (["evaluate", "x", "--image=8"], "Did you mean --image_size? Received: --image."),
        (["train", "--total_steps=20"], "Did you mean --config.total_steps? Received: --total_st"),
        (["data", "prepare", "tfds:cifra10"], "Did you mean cifar10? Expected a data set of TFDS"),
        (["evaluate", "--modle=Ti"], "Did you mean --model? Received: --modle."),
        (["evaluate", "x", "--image_size=big"], "argument --image_size: invalid int value: 'big'."),
        (["evaluate", "x", "--config.seed=1"], "unrecognized arguments: --config.seed=1"),
        (
            ["analyze", "--model=Ti"],
            "the following arguments are required: SOURCE, --output. See",
        ),
    ],
)
def test_wrong_words_are_answered_with_the_closest(words, expected, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"error: {expected}")


def test_changes_of_the_config():
    parser = CommandParser("keras-vit test")
    parser.add_run(config=False)
    parser.add_argument("study")
    config = default_config()
    config.update({"dataset": "digits", "batch_size": 8, "total_steps": 1})
    changes = ["--config.train_preprocess=decode|value_range(-1, 1)", "--config.seed=3"]
    options = parser.parse_args(["--workdir=run", *changes, "head", "--data_dir=data"])
    assert options.study == "head" and options.overrides == changes
    changed = config_of(options, config)
    assert changed.train_preprocess == "decode|value_range(-1, 1)"
    assert (changed.seed, changed.data_dir, changed.eval_batch_size) == (3, "data", 8)
    options = parser.parse_args(["head", "--workdir=run", "--config.sead=3"])
    with pytest.raises(UsageError, match="Did you mean seed"):
        config_of(options, config)


@pytest.mark.parametrize("name", training.__all__)
def test_doors_for_scripts_lead_to_functions(name):
    assert callable(getattr(training, name)) and getattr(training, name).__name__ == name
