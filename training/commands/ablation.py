"""`python -m training ablation STUDY`: the paper's ablations, trained and drawn."""

import sys

from training.commands import command
from training.io.quiet_start import import_tensorflow

DESCRIPTION = """\
Trains every cell of a study, scores it by linear few-shot accuracy, and draws its figure:

  position    kinds and placements of position embeddings        Table 8
  head        class token or mean of the tokens                  appendix D.3, second version
  shape       depth, width, MLP, patch size                      Figure 8
  axial       axial attention over compute and over speed        Figure 12
  data_size   random fractions of the data, early stopping       Figures 3 and 4

  python -m training ablation position --workdir=runs/position --config.data_dir=DIR

Any key of the cells' config is set with --config.KEY=VALUE, --config.total_steps=300 for example.
Cells that have finished are kept, and an interrupted one is resumed, when the same command is
given again. The working directory gets results.csv, results.md, the figure, and a run directory
for each cell and seed.
"""


def main(arguments=None):
    """Runs the command and returns the exit status of the process."""
    overrides, others = command.split_overrides(sys.argv[1:] if arguments is None else arguments)
    options = _options().parse_args(others)
    return command.run(lambda: _run(options, overrides))


def _options():
    from training.protocols.ablation import STUDIES

    parser = command.parser("training ablation", DESCRIPTION)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--scale",
        default="small",
        choices=("small", "paper"),
        help="small: CIFAR-10 on a CPU; paper: the paper's models on ImageNet-21k",
    )
    parser.add_argument("--cells", type=command.list_of(str), help="only these; default all")
    parser.add_argument("--seeds", type=command.list_of(int), default=[0])
    parser.add_argument("--few_shot_dataset", help="default CIFAR-10, or ImageNet at paper's scale")
    parser.add_argument("--few_shot_train_split", help="where examples are chosen")
    parser.add_argument("--few_shot_test_split", help="what is classified")
    return parser


def _configs(options, overrides):
    from training import config_flags
    from training.protocols import ablation

    configs = ablation.study_module(options.study).cells(options.scale)
    unknown = sorted(set(options.cells or ()) - set(configs))
    if unknown:
        raise ValueError(
            f"Expected cells among {', '.join(configs)}. Received: {', '.join(unknown)}."
        )
    return {
        cell: config_flags.override(config, overrides)
        for cell, config in configs.items()
        if not options.cells or cell in options.cells
    }


def _run(options, overrides):
    import pathlib

    from training.configs import ablation_base
    from training.io.atomic import whole_file, write_text
    from training.protocols import ablation, ablation_figures

    configs = _configs(options, overrides)
    given = (options.few_shot_dataset, options.few_shot_train_split, options.few_shot_test_split)
    usual = ablation_base.FEW_SHOT[options.scale]
    few_shot_task = tuple(a or b for a, b in zip(given, usual, strict=True))

    import_tensorflow()
    scores = ablation.run_study(
        options.study, configs, options.workdir, few_shot_task, seeds=options.seeds
    )
    study = ablation.study_module(options.study)
    table = ablation.summary(study.TITLE, scores, getattr(study, "PAPER", None))
    workdir = pathlib.Path(options.workdir)
    write_text(workdir / "results.csv", ablation.every_score(scores).csv())
    write_text(workdir / "results.md", table.markdown())
    figure = ablation_figures.draw(options.study, scores, workdir)
    with whole_file(workdir / f"{options.study}.png") as temporary:
        figure.savefig(temporary, format="png")
    table.show()
    print(f"Written to {workdir}: results.csv, results.md, {options.study}.png")


if __name__ == "__main__":
    sys.exit(main())
