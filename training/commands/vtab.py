"""`keras-vit vtab SOURCE`: VTAB-1k, the 19-task transfer benchmark (Tables 2 and 9).

Fine-tunes a checkpoint on the 1,000 training images of every VTAB task and scores it on the task's
whole test split. The paper's setting is the default: learning rate 0.01, 2,500 steps, batches of
512, 384 pixels, mean of three runs. Runs that have finished are kept, and an interrupted one is
resumed, when the same command is given again.

  keras-vit vtab runs/pretrain --data_dir=DIR --workdir=runs/vtab
  keras-vit vtab ViT-B_16.npz --model=ViT-B/16 --data_dir=DIR --workdir=runs/vtab

Data sets that are not in --data_dir are listed before anything is trained. The working directory
gets vtab.md, vtab.csv, vtab.png, and for each task its run directories and the names of its 1,000
training examples.
"""

import argparse

from ..command_line.options import CommandParser, above_0, at_least_1, list_of, whole
from ..config.overrides import config_of, refuse_chosen
from ..configs import finetune
from ..data import open_dataset
from ..data.sets.tfds_folder import NotPreparedError
from ..errors import UsageError
from ..io.quiet_start import import_tensorflow
from ..paper_tables import TABLE_4, VTAB


def add_options(parser: CommandParser) -> None:
    # Configs name it, and must be the same when a run is resumed.
    parser.add_source(exported=False, store="keep")
    parser.add_run(config=False)
    text = "names, separated by commas; default all 19"
    names = [task.name for task in VTAB]
    parser.add_argument("--tasks", type=list_of(_name_of, names), default=names, help=text)
    text = "learning rates, selected after training on 800 images by accuracy on the other 200"
    parser.add_argument("--rates", type=list_of(above_0), help=text)
    text = "whether every task gets its best rate, or all the one of highest mean (the paper's)"
    parser.add_argument("--select", choices=("task", "suite"), default="task", help=text)
    text = "of the runs, separated by commas; default 0,1,2"
    parser.add_argument("--seeds", type=list_of(whole), default=[0, 1, 2], help=text)
    parser.add_argument("--steps", type=at_least_1, help="number of updates, default 2500")
    text = "go on with the tasks whose data is there"
    parser.add_argument("--skip_missing", action="store_true", help=text)


def run(options: argparse.Namespace) -> None:
    chosen = ("optimizer.base_lr", "seed", "dataset", "train_split", "eval_split", "checkpoint")
    refuse_chosen(options.overrides, *chosen)
    # Every config is made before any run, so that a wrong option ends the command at once.
    configs = [(task, _config(options, task)) for task in VTAB if task.name in options.tasks]
    opened, missing = [], []
    for task, config in configs:
        try:
            opened.append((task, config, open_dataset(config.dataset, config.data_dir or None)))
        except NotPreparedError as error:
            missing.append(f"{task.title}: {error}")
    if missing:
        listing = "\n".join(missing)
        if not options.skip_missing:
            raise UsageError(
                f"The data of {len(missing)} of {len(configs)} tasks is missing:\n{listing}\n"
                "Prepare it, choose others with --tasks, or leave these out with --skip_missing."
            )
        print(f"Left out, because their data is missing:\n{listing}")
    if not opened:
        raise UsageError("No task is left to run.")

    import_tensorflow()
    from ..protocols import vtab

    vtab.run(
        opened,
        options.workdir,
        name=options.model or options.source,
        rates=options.rates or TABLE_4["vtab"].base_lrs,
        seeds=options.seeds,
        one_rate=options.select == "suite",
    ).show()
    print(f"Written to {options.workdir}: vtab.md, vtab.csv, vtab.png")
    if len(opened) < len(VTAB):
        print(f"{len(opened)} of {len(VTAB)} tasks: the means are not comparable with Table 9's.")


def _name_of(task):
    """Returns the registry's name of a task, which may be given by the paper's."""
    return next((each.name for each in VTAB if each.title == task), task)


def _config(options, task):
    given = {"size": options.image_size or 0, "steps": options.steps or 0}
    keys = [f"{key}={value}" for key, value in given.items()]
    source = options.model or options.source
    config = finetune.get_config(",".join([source, f"vtab/{task.name}", *keys]))
    config.checkpoint = options.source
    return config_of(options, config)
