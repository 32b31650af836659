"""One run of a protocol: trained unless it has finished, its scores kept in `result.json`."""

import dataclasses
import json
import logging
import math
import pathlib
from collections.abc import Callable, Sequence

from ml_collections import ConfigDict

from keras_vit.training.data import Dataset, fingerprint
from keras_vit.training.errors import Diverged, UsageError, damage_named
from keras_vit.training.io.atomic import write_text
from keras_vit.training.io.paths import read_path
from keras_vit.training.reporting.metrics_csv import read_metrics

RESULT = "result.json"


# Each run traces its own functions, of which TensorFlow warns as of retracing.
logging.getLogger("tensorflow").addFilter(
    lambda record: "tf.function retracing" not in record.getMessage()
)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The scores of one finished run on its evaluation split.

    Attributes:
        top1, top5: fractions in [0, 1].
        loss: mean over the images.
        count: images scored.
        diverged: why there are no scores; "" where there are.
    """

    top1: float | None = None
    top5: float | None = None
    loss: float | None = None
    count: int = 0
    diverged: str = ""

    @property
    def percent(self) -> float:
        """Top-1 accuracy in percent; NaN of a run that diverged."""
        return math.nan if self.top1 is None else 100 * self.top1

    def __str__(self) -> str:
        return f"diverged ({self.diverged})" if self.diverged else f"{self.percent:.2f} %"


def refuse_chosen(overrides: Sequence[str], *keys: str) -> None:
    """Refuses overrides of keys that a protocol sets in each run.

    Raises:
        UsageError: with the option that takes their values.
    """
    options = {"optimizer.base_lr": "--rates", "seed": "--seeds"}
    for name in {each.partition("=")[0].removeprefix("--config.") for each in overrides}:
        if name in keys:
            raise UsageError(
                f"Expected {options[name]}: this protocol sets config.{name} in each run. "
                f"Received: --config.{name}."
            )


def train_run(config: ConfigDict, workdir: pathlib.Path, dataset: Dataset) -> RunResult:
    """Trains one run unless it has finished, and returns its scores.

    The scores are those that the trainer logs after the last step. Once they are in
    `result.json`, the run's checkpoints for resuming it are deleted; `model.keras` stays.

    Args:
        config: of the run.
        workdir: its directory.
        dataset: `config.dataset`, open.

    Raises:
        UsageError: if `workdir` holds a run of another config, or on other data.
    """
    import keras
    from etils import epath

    from keras_vit.training.config import schema
    from keras_vit.training.io import stores
    from keras_vit.training.loop import trainer

    wanted = json.loads(schema.to_json(schema.complete(config)))
    data = dataset.describe(config.train_split, config.eval_split)

    def train() -> dict:
        # Frees the graphs of earlier runs in this process.
        keras.utils.clear_session()
        try:
            trainer.train(config, workdir, dataset=dataset)
            result = _last_scores(workdir)
        except Diverged as error:
            result = RunResult(diverged=str(error))
        return {"config": wanted, "data": data, "result": dataclasses.asdict(result)}

    kept = computed_once(workdir / RESULT, train)
    changes = schema.differences(kept["config"], wanted)
    if changes:
        raise UsageError(
            f"{workdir} holds a run of another config ({'; '.join(changes)}). "
            "Use another --workdir."
        )
    fingerprint.require_same(kept["data"], data, str(workdir), wanted["data_changed"] == "accept")
    stores.remove(epath.Path(workdir / "checkpoints"))
    return RunResult(**kept["result"])


def computed_once(file: pathlib.Path, compute: Callable[[], dict]) -> dict:
    """Returns the JSON of `file`, which is what `compute` returns where there is none yet.

    Raises:
        ValueError: if the file is damaged.
        UsageError, TrainingError: if it is in a store that refuses or fails.
    """
    if not read_path(file, file.exists):
        write_text(file, json.dumps(compute(), indent=2, sort_keys=True) + "\n")
    content = read_path(file, file.read_bytes)
    with damage_named(f"{file} is damaged", "Delete it to compute it again."):
        found = json.loads(content)
        if not isinstance(found, dict):
            raise TypeError(f"it holds a {type(found).__name__}")
    return found


def _last_scores(workdir: pathlib.Path) -> RunResult:
    last = {name: series[-1][1] for name, series in read_metrics(workdir / "metrics.csv").items()}
    count = int(last["eval_count"])
    return RunResult(
        # The file rounds; the number of correct images is an integer.
        top1=round(last["eval_top1"] * count) / count,
        top5=round(last["eval_top5"] * count) / count,
        loss=last["eval_loss"],
        count=count,
    )
