"""Runs of a protocol: trained unless they have finished, the scores of each in `result.json`."""

import contextlib
import contextvars
import copy
import dataclasses
import json
import logging
import math
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
from etils import epath
from ml_collections import ConfigDict

from keras_vit.errors import damage_named

from ..config import schema
from ..data import Dataset
from ..data.sets import fingerprint
from ..engine import checkpoints
from ..errors import Diverged, TrainingError, UsageError
from ..io import remote_stores
from ..io.atomic import write_text
from ..io.paths import read_path
from ..loop import run_directory, trainer
from ..reporting.collect_run_results import step_of_model
from ..reporting.metrics_csv import read_metrics
from ..source_facts import read_run_config
from ..tasks import COUNT, LOSS, task_of

logger = logging.getLogger("keras_vit")

RESULT = "result.json"
# Files from which a run would go on, or that describe it.
_WRITTEN = re.compile(r"config\.json|metrics\.csv|(model|best)\.keras|report\.html|evaluation\.npz")
# The digest of the weights that all runs of a protocol begin from.
_BEGUN: contextvars.ContextVar[str] = contextvars.ContextVar("begun", default="")

# Each run traces new functions, which TensorFlow takes for retracing and warns of.
logging.getLogger("tensorflow").addFilter(
    lambda record: "tf.function retracing" not in record.getMessage()
)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The scores of one finished run on its evaluation split."""

    score: float | None = None  # of the task's main metric, a share in [0, 1]
    others: Mapping[str, float] = dataclasses.field(default_factory=dict)  # metrics, mean loss
    count: int = 0  # images scored
    diverged: str = ""  # why there are no scores

    @property
    def percent(self) -> float:
        """The score in percent; NaN of a run that diverged."""
        return math.nan if self.score is None else 100 * self.score

    def __str__(self) -> str:
        return f"diverged ({self.diverged})" if self.diverged else f"{self.percent:.2f} %"


@contextlib.contextmanager
def same_weights(checkpoint: str) -> Iterator[None]:
    """Enters a context in which every run of `train_run` begins from the weights of now."""
    token = _BEGUN.set(_BEGUN.get() or fingerprint.digest_of_checkpoint(checkpoint))
    try:
        yield
    finally:
        _BEGUN.reset(token)


def require_last_update(config: ConfigDict) -> None:
    """Refuses runs that end, or are handed over, by what they score on the evaluation split."""
    if config.early_stopping.patience or config.hand_over == "best":
        raise UsageError(
            "Expected --config.early_stopping.patience=0 --config.hand_over=last: the last update "
            f"is scored, as none is chosen on {config.eval_split}. Received: "
            f"patience={config.early_stopping.patience}, hand_over={config.hand_over}."
        )


def train_seeds(
    config: ConfigDict, workdir: pathlib.Path, dataset: Dataset, seeds: Sequence[int]
) -> Iterator[tuple[int, RunResult]]:
    """Yields (seed, scores) of runs that differ in `config.seed` alone, in `workdir`/seed_SEED."""
    for number, seed in enumerate(seeds, 1):
        changed = copy.deepcopy(config)
        changed.seed = seed
        result = train_run(changed, workdir / f"seed_{seed}", dataset)
        words = (config.dataset, config.optimizer.base_lr, seed, number, len(seeds), result)
        logger.info("%s, rate %g, seed %d (%d of %d): %s on %s", *words, config.eval_split)
        yield seed, result


def train_run(config: ConfigDict, workdir: pathlib.Path, dataset: Dataset) -> RunResult:
    """Trains one run unless it has finished, and returns its scores.

    The scores are those of the model that the run hands over. Once they are in `result.json`, the
    run's checkpoints for resuming it are deleted; `model.keras` stays.
    `dataset` is `config.dataset`, open.

    Raises:
        UsageError: for a job of several processes, and if `workdir` holds a run of another
            config, from other weights than those of `same_weights`, or on other data.
        TrainingError: if files of its data were replaced while it trained.
    """
    if config.strategy == "multiworker" or config.processes.count > 1:
        raise UsageError(
            "Expected one process, which trains run after run: TensorFlow and JAX join a job once. "
            f"Received: config.strategy={config.strategy}, {config.processes.count} processes."
        )
    wanted = json.loads(schema.to_json(schema.complete(config)))
    checkpoint = _BEGUN.get() or fingerprint.digest_of_checkpoint(config.checkpoint)
    data = dataset.describe(config.train_split, config.eval_split)
    folder = epath.Path(workdir)

    def require_start(found):
        if found != checkpoint:
            raise UsageError(
                f"{workdir} holds a run that began from other weights than {config.checkpoint} had "
                "when this command did. Use another --workdir."
            )

    def require_start_of_run():
        begun = workdir / "config.json"
        if read_path(begun, begun.exists):
            require_start(read_run_config(begun)["data"].get("checkpoint", ""))

    def remove_if_replaced():
        try:
            dataset.require_unchanged()
        except TrainingError:
            _remove(folder / "checkpoints", checkpoints.OURS)
            _remove(folder / "tensorboard", run_directory.EVENTS)
            _remove(folder, _WRITTEN)
            raise

    def train() -> dict:
        require_start_of_run()
        # Frees the graphs of earlier runs in this process.
        keras.utils.clear_session()
        try:
            trainer.train(config, workdir, dataset=dataset)
            result = _scores(workdir, wanted)
        except Diverged as error:
            result = RunResult(diverged=str(error))
        except TrainingError as error:
            # The same command would go on from its states; but the folder may be another run's.
            if not isinstance(error, UsageError):
                remove_if_replaced()
            raise
        remove_if_replaced()
        require_start_of_run()
        scores = {"result": dataclasses.asdict(result), "checkpoint": checkpoint}
        return {"config": wanted, "data": data, **scores}

    kept = computed_once(workdir / RESULT, train)
    if changes := "; ".join(schema.differences(kept["config"], wanted)):
        raise UsageError(
            f"{workdir} holds a run of another config ({changes}). Use another --workdir."
        )
    require_start(kept["checkpoint"])
    accept = wanted["data_changed"] == "accept"
    fingerprint.require_same(kept["data"], data, str(workdir), accept, finished=True)
    _remove(folder / "checkpoints", checkpoints.OURS)
    return RunResult(**kept["result"])


def _remove(folder, names):
    """Removes what runs write in a folder, all that `names` match, and an empty folder."""
    there = read_path(folder, lambda: [*folder.iterdir()] if folder.is_dir() else [])
    for path in filter(lambda each: names.fullmatch(each.name), there):
        remote_stores.remove(path)
    if all(names.fullmatch(each.name) for each in there):
        remote_stores.remove(folder)


def computed_once(
    file: pathlib.Path, compute: Callable[[], dict], data: Sequence[str] | None = None
) -> dict:
    """Returns the JSON of `file`, which is what `compute` returns where there is none yet.

    It is computed again where `data`, which identifies its source, has changed. Raises ValueError
    if the file is damaged.
    """
    if not read_path(file, file.exists):
        made = compute() | ({} if data is None else {"made_from": list(data)})
        write_text(file, json.dumps(made, indent=2, sort_keys=True) + "\n")
    content = read_path(file, file.read_bytes)
    with damage_named(f"{file} is damaged", "Delete it to compute it again."):
        found = json.loads(content)
        if not isinstance(found, dict):
            raise TypeError(f"it holds a {type(found).__name__}")
    if data is not None and found.pop("made_from", None) != list(data):
        file.unlink()
        return computed_once(file, compute, data)
    return found


def _scores(workdir, config):
    series, task = read_metrics(workdir / "metrics.csv"), task_of(config)
    if config["hand_over"] == "best":
        # Evaluations before other data was accepted are of other images.
        since = read_run_config(workdir / "config.json")["data"].get("accepted_after", 0)
        series = {name: [row for row in rows if row[0] > since] for name, rows in series.items()}
    step = step_of_model(series, config)
    last = {name: dict(rows).get(step) for name, rows in series.items()}
    count = int(last[COUNT])
    found = {
        # The file rounds; the number of correct images is an integer.
        each.name: round(last[each.column] * count) / count if each.of_images else last[each.column]
        for each in (*task.metrics, LOSS)
    }
    return RunResult(found.pop(task.main.name), found, count)
