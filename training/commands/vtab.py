"""`python -m training vtab SOURCE`: VTAB-1k, the 19-task transfer benchmark (Tables 2 and 9).

Fine-tunes a checkpoint on the 1,000 training images of every VTAB task and scores it on the task's
whole test split. The paper's setting is the default: learning rate 0.01, 2,500 steps, batches of
512, 384 pixels, mean of three runs. Runs that have finished are kept, and an interrupted one is
resumed, when the same command is given again.

  python -m training vtab runs/pretrain --data_dir=DIR --workdir=runs/vtab
  python -m training vtab ViT-B_16.npz --model=ViT-B/16 --data_dir=DIR --workdir=runs/vtab

Data sets that are not in --data_dir are listed before anything is trained. The working directory
gets vtab.md, vtab.csv, vtab.png, and for each task its run directories and the names of its 1,000
training examples.
"""

import argparse
import sys

from training.command_options import CommandParser, complete_config, list_of
from training.exit_status import command_main
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = CommandParser("python -m training vtab", __doc__)
    parser.add_source("of the images, as fine-tuned; default 384")
    # The older spelling.
    parser.add_argument("--size", dest="image_size", type=int, help=argparse.SUPPRESS)
    parser.add_run(config=False)
    parser.add_argument(
        "--tasks", type=list_of(str), help="names, separated by commas; default all 19"
    )
    parser.add_argument(
        "--rates",
        type=list_of(float),
        help="learning rates, selected after training on 800 images by accuracy on the other 200",
    )
    parser.add_argument(
        "--select",
        choices=("task", "suite"),
        default="task",
        help="whether every task gets its best rate, or all the one of highest mean (the paper's)",
    )
    parser.add_argument("--seeds", type=list_of(int), default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="number of updates, default 2500")
    parser.add_argument(
        "--skip_missing", action="store_true", help="go on with the tasks whose data is there"
    )
    return parser


def _vtab(options):
    from training.data.vtab_tasks import TASKS
    from training.errors import UsageError
    from training.paper_tables import TABLE_4
    from training.protocols import vtab_suite

    # Every config is made before any run, so that a wrong option ends the command at once.
    tasks = [(task, _config(options, task)) for task in vtab_suite.choose_tasks(options.tasks)]
    opened, missing = vtab_suite.open_tasks(tasks)
    if missing:
        listing = "\n".join(missing.values())
        if not options.skip_missing:
            raise UsageError(
                f"The data of {len(missing)} of {len(tasks)} tasks is missing:\n{listing}\n"
                "Prepare it, choose others with --tasks, or leave these out with --skip_missing."
            )
        print(f"Left out, because their data is missing:\n{listing}")
    if not opened:
        raise UsageError("No task is left to run.")

    import_tensorflow()
    vtab_suite.run(
        opened,
        options.workdir,
        name=options.model or options.source,
        rates=options.rates or TABLE_4["vtab"].base_lrs,
        seeds=options.seeds,
        one_rate=options.select == "suite",
    ).show()
    print(f"Written to {options.workdir}: vtab.md, vtab.csv, vtab.png")
    if len(opened) < len(TASKS):
        print(f"{len(opened)} of {len(TASKS)} tasks: the means are not comparable with Table 9's.")


def _config(options, task):
    from training.configs import finetune

    parts = [options.model or options.source, f"vtab/{task.name}"]
    given = {"size": options.image_size, "steps": options.steps}
    parts += [f"{key}={value}" for key, value in given.items() if value]
    config = finetune.get_config(",".join(parts))
    config.checkpoint = options.source
    return complete_config(config, options)


main = command_main(_parser, _vtab)

if __name__ == "__main__":
    sys.exit(main())
