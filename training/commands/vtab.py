"""`python -m training vtab`: VTAB-1k, the 19-task transfer benchmark (Tables 2 and 9)."""

import sys

from training.commands import command
from training.io.quiet_start import import_tensorflow

DESCRIPTION = """\
Fine-tunes a checkpoint on the 1,000 training images of every VTAB task and scores it on the task's
whole test split. The paper's setting is the default: learning rate 0.01, 2,500 steps, batches of
512, 384 pixels, mean of three runs. Runs that have finished are kept, and an interrupted one is
resumed, when the same command is given again.

  python -m training vtab --checkpoint=runs/pretrain --data_dir=DIR --workdir=runs/vtab
  python -m training vtab --checkpoint=ViT-B_16.npz --model=ViT-B/16 --data_dir=DIR --workdir=…

Data sets that are not in --data_dir are listed before anything is trained. Any key of the tasks'
config is set with --config.KEY=VALUE. The working directory gets vtab.md, vtab.csv, vtab.png, and
for each task its run directories and the names of its 1,000 training examples.
"""


def main(arguments=None):
    """Runs the command and returns the exit status of the process."""
    overrides, others = command.split_overrides(sys.argv[1:] if arguments is None else arguments)
    options = _options().parse_args(others)
    return command.run(lambda: _vtab(options, overrides))


def _options():
    parser = command.parser("training vtab", DESCRIPTION)
    parser.add_argument(
        "--checkpoint", required=True, help="run directory, .keras, .npz or safetensors file"
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--model", help="name of the model, where the checkpoint does not say")
    parser.add_argument("--data_dir", default="", help="folder of TensorFlow Datasets")
    parser.add_argument(
        "--tasks", type=command.list_of(str), help="names, separated by commas; default all 19"
    )
    parser.add_argument(
        "--rates",
        type=command.list_of(float),
        help="learning rates, selected after training on 800 images by accuracy on the other 200",
    )
    parser.add_argument(
        "--select",
        choices=("task", "suite"),
        default="task",
        help="whether every task gets its best rate, or all the one of highest mean (the paper's)",
    )
    parser.add_argument("--seeds", type=command.list_of(int), default=[0, 1, 2])
    parser.add_argument("--size", type=int, help="image size, default 384")
    parser.add_argument("--steps", type=int, help="number of updates, default 2500")
    parser.add_argument(
        "--skip_missing", action="store_true", help="go on with the tasks whose data is there"
    )
    return parser


def _vtab(options, overrides):
    from training.data.vtab_tasks import TASKS
    from training.errors import UsageError
    from training.protocols import vtab
    from training.recipes import tables

    tasks = vtab.choose_tasks(options.tasks)
    missing = vtab.missing(tasks, options.data_dir)
    if missing:
        listing = "\n".join(missing.values())
        if not options.skip_missing:
            raise UsageError(
                f"The data of {len(missing)} of {len(tasks)} tasks is missing:\n{listing}\n"
                "Prepare it, choose others with --tasks, or leave these out with --skip_missing."
            )
        print(f"Left out, because their data is missing:\n{listing}")
        tasks = [task for task in tasks if task.title not in missing]
    if not tasks:
        raise UsageError("No task is left to run.")

    # Every config is made before any run, so that a wrong option ends the command at once.
    configured = [(task, _config(options, overrides, task)) for task in tasks]
    import_tensorflow()
    vtab.run(
        configured,
        options.workdir,
        name=options.model or options.checkpoint,
        rates=options.rates or tables.FINE_TUNING["vtab"].base_lrs,
        seeds=options.seeds,
        one_rate=options.select == "suite",
    ).show()
    print(f"Written to {options.workdir}: vtab.md, vtab.csv, vtab.png")
    if len(tasks) < len(TASKS):
        print(f"{len(tasks)} of {len(TASKS)} tasks: the means are not comparable with Table 9's.")


def _config(options, overrides, task):
    from training import config_flags, config_keys
    from training.configs import finetune

    parts = [options.model or options.checkpoint, f"vtab/{task.name}"]
    parts += [f"{key}={value}" for key in ("size", "steps") if (value := getattr(options, key))]
    config = finetune.get_config(",".join(parts))
    config.checkpoint, config.data_dir = options.checkpoint, options.data_dir
    return config_keys.complete(config_flags.override(config, overrides))


if __name__ == "__main__":
    sys.exit(main())
