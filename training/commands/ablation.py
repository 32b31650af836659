"""`keras-vit ablation STUDY`: the paper's ablations: runs, tables and figures.

Trains every cell of a study, scores it by linear few-shot accuracy, and draws its figure:

  position    kinds and placements of position embeddings        Table 8
  head        class token or mean of the tokens                  appendix D.3, second version
  shape       depth, width, MLP, patch size                      Figure 8
  axial       axial attention over compute and over speed        Figure 12
  data_size   random fractions of the data, early stopping       Figures 3 and 4

  keras-vit ablation position --workdir=runs/position --data_dir=DIR

Cells that have finished are kept, and an interrupted one is resumed, when the same command is
given again. The working directory gets results.csv, results.md, the figure, and a run directory
for each cell and seed.
"""

import argparse

from ..command_line.options import CommandParser, list_of, whole
from ..config.overrides import config_of, refuse_chosen
from ..config.schema import flatten
from ..configs.ablation import FEW_SHOT, STUDIES
from ..data import open_dataset
from ..io.atomic import write_text
from ..io.quiet_start import import_tensorflow


def add_options(parser: CommandParser) -> None:
    parser.add_argument("study", choices=tuple(STUDIES), help="what the runs differ in")
    parser.add_run(config=False)
    text = "small: CIFAR-10 on a CPU; paper: the paper's models on ImageNet-21k"
    parser.add_argument("--scale", default="small", choices=("small", "paper"), help=text)
    parser.add_argument("--cells", type=list_of(str), help="only these; default all")
    text = "of the runs, separated by commas; default 0"
    parser.add_argument("--seeds", type=list_of(whole), default=[0], help=text)
    parser.add_argument("--few_shot_dataset", help="default CIFAR-10, or ImageNet at paper's scale")
    parser.add_argument("--few_shot_train_split", help="where examples are chosen")
    parser.add_argument("--few_shot_test_split", help="what is classified")


def run(options: argparse.Namespace) -> None:
    study = STUDIES[options.study]
    configs = _configs(study, options)
    given = (options.few_shot_dataset, options.few_shot_train_split, options.few_shot_test_split)
    usual = FEW_SHOT[options.scale]
    few_shot_set, *few_shot_splits = (a or b for a, b in zip(given, usual, strict=True))
    data_dirs = {config.dataset: config.data_dir for config in configs.values()}
    data_dirs.setdefault(few_shot_set, options.data_dir)
    datasets = {name: open_dataset(name, data_dir) for name, data_dir in data_dirs.items()}

    import_tensorflow()
    from ..evaluators.few_shot import open_task
    from ..protocols.run_ablation import every_score, run_study, study_figure, study_table
    from ..reporting.matplotlib_figures import write_png

    workdir, task = options.workdir, open_task(datasets[few_shot_set], *few_shot_splits)
    scores = run_study(study, configs, workdir, datasets, task, seeds=options.seeds)
    table = study_table(study.title, scores, study.paper)
    write_text(workdir / "results.csv", every_score(scores).csv())
    write_text(workdir / "results.md", table.markdown())
    write_png(study_figure(options.study, scores, workdir), workdir / f"{options.study}.png")
    table.show()
    print(f"Written to {workdir}: results.csv, results.md, {options.study}.png")


def _configs(study, options):
    configs = study.cells(options.scale)
    if unknown := sorted({*(options.cells or ())} - configs.keys()):
        raise ValueError(
            f"Expected cells among {', '.join(configs)}. Received: {', '.join(unknown)}."
        )
    configs = {cell: configs[cell] for cell in configs if cell in (options.cells or configs)}
    flat = [flatten(config) for config in configs.values()]
    keys = {key for config in flat for key in config}
    varied = [key for key in keys if len({repr(config.get(key)) for config in flat}) > 1]
    refuse_chosen(options.overrides, "seed", *varied)
    return {cell: config_of(options, config) for cell, config in configs.items()}
