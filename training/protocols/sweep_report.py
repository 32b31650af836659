"""Shows the results of a sweep over learning rates as a table and a plot."""

import pathlib
from collections.abc import Mapping, Sequence

from keras_vit.training.evaluators.mean_deviation import MeanDeviation
from keras_vit.training.io.atomic import write_text
from keras_vit.training.io.printed_table import Table
from keras_vit.training.paper_tables import TABLE_2, TABLE_5, TABLE_6, UPSTREAM
from keras_vit.training.protocols.learning_rate_sweep import Transfer
from keras_vit.training.reporting.figures import new_figure, write_png


def sweep_table(
    found: Transfer,
    published: Sequence[tuple[str, str]] = (),
    further: Mapping[str, Sequence[float]] | None = None,
) -> Table:
    """Returns the table of a sweep: rates, seeds, mean and standard deviation.

    Args:
        found: what `transfer` returned.
        published: of `published_results`.
        further: what `score_further_test_sets` returned.
    """
    rows: list[tuple] = [
        (
            "development",
            f"rate {rate:g}" + (" (chosen)" if rate == found.rate else ""),
            "diverged" if result.diverged else f"{result.percent:.2f}",
            result.count,
        )
        for rate, result in found.development.items()
    ]
    rows += [
        ("test", f"rate {found.rate:g}, seed {seed}", f"{result.percent:.2f}", result.count)
        for seed, result in found.test.items()
    ]
    for name, accuracies in {"test": found.accuracies, **(further or {})}.items():
        mean = str(MeanDeviation.of(accuracies))
        rows.append((name, f"mean of {len(accuracies)}", mean, ""))
    rows += [("paper", where, result, "") for where, result in published]
    return Table(("split", "run", "top-1 %", "images"), rows, f"Fine-tuning on {found.dataset}")


def published_results(model: str, dataset: str) -> list[tuple[str, str]]:
    """Returns (where, accuracy in percent) for every result of fine-tuning `model` on `dataset`.

    Args:
        model: name of the model, such as "ViT-B/16".
        dataset: name in the registry.
    """
    found = []
    for number, table in ((2, TABLE_2), (5, TABLE_5), (6, TABLE_6)):
        for (name, source), row in table.items():
            # Table 5 has the longest runs of the Vision Transformers already.
            known = number == 6 and (name, "jft") in TABLE_5
            if name == model and dataset in row and not known:
                where = UPSTREAM.get(source) or f"{UPSTREAM['jft']}, {source} epochs"
                result = row[dataset]
                mean = result if isinstance(result, tuple) else (result,)
                found.append((f"Table {number}, {where}", str(MeanDeviation(*mean))))
    return found


def _sweep_figure(found):
    """Draws development accuracy over the learning rate, and the test accuracies at the chosen."""
    figure, (axes,) = new_figure()
    finished = sorted(
        (rate, result.percent) for rate, result in found.development.items() if result.count
    )
    if finished:
        axes.plot(*zip(*finished, strict=True), "o-", label="development")
    mean, deviation = MeanDeviation.of(found.accuracies)
    label = "test" if deviation is None else f"test ({len(found.test)} seeds)"
    axes.errorbar(found.rate, mean, yerr=deviation, fmt="s", capsize=4, label=label)
    axes.set(xscale="log", xlabel="learning rate", ylabel="top-1 accuracy, %", title=found.dataset)
    axes.legend()
    return figure


def write_sweep(found: Transfer, table: Table, workdir: pathlib.Path) -> None:
    """Writes `sweep.md`, `sweep.csv` and `sweep.png` into `workdir`."""
    write_text(workdir / "sweep.md", table.markdown())
    write_text(workdir / "sweep.csv", table.csv())
    write_png(_sweep_figure(found), workdir / "sweep.png")
