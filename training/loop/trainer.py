"""The training loop: from a config to a run directory, through any interruption."""

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import keras
from ml_collections import ConfigDict

from keras_vit.optimizers import Optimizer
from keras_vit.type_hints import Tensor

from ..config import schema
from ..data import Dataset
from ..data.opened_dataset import warn_of_trained
from ..data.run_data import RunData
from ..data.sets import fingerprint
from ..distillation import Teachers
from ..engine import create_engine
from ..engine.engine_interface import Engine
from ..engine.update import Batch, Report
from ..errors import Diverged, Interrupted, TrainingError, UsageError, first_line
from ..evaluators.base import Evaluator, create_evaluators
from ..evaluators.few_shot import open_task
from ..inference.image_function import KerasFunction
from ..inference.open_model import load_model
from ..io.progress_bar import Progress
from ..recipes.model import build_model
from ..recipes.optimizer import optimizer_of
from ..reporting import doubtful_labels
from ..reporting.collect_run_results import report_run
from ..reporting.metrics_csv import read_metrics
from ..source_facts import runs_behind
from ..tasks import COUNT, METRICS, compared_by, task_of
from . import agreement_of_workers
from .interruption import StopRequest
from .run_directory import RunDirectory
from .state import BestEvaluation, LoopState

logger = logging.getLogger("keras_vit")


def _name_of(function):
    """Returns the name of an own function, the same in every process, with what `partial` gave."""
    if isinstance(function, functools.partial):
        given = [*map(str, function.args), *(f"{k}={v}" for k, v in function.keywords.items())]
        return f"{_name_of(function.func)}({', '.join(given)})"
    return getattr(function, "__name__", type(function).__name__)


class Own(NamedTuple):
    """A program's own functions, in the place of those that the config names or beside them."""

    losses: Callable[[keras.Model, Batch], Tensor] | None
    optimizer: Callable[[keras.Model], Optimizer] | None
    evaluators: Sequence[Evaluator]
    loggers: Sequence[Callable[[int, Mapping[str, float]], None]]


def train(
    config: ConfigDict | dict,
    workdir: str | os.PathLike,
    *,
    dataset: Dataset | None = None,
    losses: Callable[[keras.Model, Batch], Tensor] | None = None,
    optimizer: Callable[[keras.Model], Optimizer] | None = None,
    evaluators: Sequence[Evaluator] = (),
    loggers: Sequence[Callable[[int, Mapping[str, float]], None]] = (),
    finish: bool = False,
) -> dict[str, float]:
    """Trains the model that `config` describes, or resumes where an earlier call was stopped.

    A run that was killed, at any moment, and started again ends with the same weights, bit for
    bit, as one that was not, on the same hardware; on other hardware or under another strategy
    up to rounding.

    Args:
        config: `ml_collections.ConfigDict` or dict with keys of `default_config`.
        workdir: run directory, which no other run may use meanwhile; it stays only if the config,
            model and data work. One in a store, such as `gs://bucket/run`, has a copy on this
            machine while it runs.
        dataset: `config.dataset`, if it is open already.
        losses: in place of the config's loss: of a model and `{"image": (batch, height, width, 3),
            "label": (batch, classes)}` the losses, (batch,) float32, in `keras.ops`.
        optimizer: in place of config.optimizer: of the model an optimizer of a subclass of
            `keras_vit.optimizers.Optimizer`, whose state is all in its variables.
        evaluators: further ones, whose numbers become columns of metrics.csv.
        loggers: called with a step and each row of metrics.csv, {column: value}, as it is written.
            A run that resumes gives the steps after its last checkpoint again.
        finish: whether a run that was stopped ends where it stands, without further updates. Its
            states stay: without `finish` it goes on later.

    A run that was begun with functions of one's own is resumed with the same.

    Returns:
        A dict of the last logged metrics, by their columns in `metrics.csv`.

    Raises:
        UsageError: before any training, for a config, environment or directory that cannot work.
        TrainingError: if the loss is not finite, a file cannot be written, a worker is lost.
        Interrupted: after SIGTERM or SIGINT, with the state saved.
    """
    config = schema.complete(config)
    with contextlib.ExitStack() as stack:
        stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        keras.config.set_dtype_policy(config.precision)
        directory = stack.enter_context(RunDirectory(workdir, config))
        try:
            engine = create_engine(config)
            stack.callback(engine.close)
            agreement_of_workers.check_alike(engine, config, directory.address)
            agreement_of_workers.check_shared(engine, directory.address)
            agreement_of_workers.acquire(engine, directory)
            directory.download()
            own = Own(losses, optimizer, evaluators, loggers)
            run = _Run(config, directory, engine, dataset, own)
            if finish and not engine.step:
                raise UsageError(
                    f"Expected a run with a saved state. Received: {directory.address}, which has "
                    "none: train it with --config."
                )
        except (ValueError, OSError) as error:
            raise UsageError(str(error)) from error
        stack.callback(run.profiling.close)
        # Only now, because the servers of several processes bring a handler of SIGTERM with them.
        return run.train(stack.enter_context(StopRequest()), finish)


class _Run:
    """One run, prepared by the constructor, which writes nothing."""

    def __init__(
        self,
        config: ConfigDict,
        directory: RunDirectory,
        engine: Engine,
        dataset: Dataset | None,
        own: Own,
    ):
        self.own = own
        self.config, self.directory, self.engine = config, directory, engine
        self.data = data = RunData(config, dataset)
        schema.derive_steps(config, data.train.num_examples, directory.before)
        few_shot_tasks = [open_task(each) for each in data.few_shot_sets]
        data.description["few_shot"] = fingerprint.of_splits(
            [split.fingerprint for each in few_shot_tasks for split in each]
        )
        agreement_of_workers.check_data(engine, data.description)
        directory.check(data.description)
        if config.expects_checkpoint and not config.checkpoint:
            logger.warning(
                "This recipe fine-tunes, and the model starts from random weights. Name some with "
                "--config.checkpoint=…, or train from scratch: --config=own_photos:FOLDER."
            )
        self.profile = [*map(int, filter(None, config.profile.split(":")))]
        self.profiling = contextlib.ExitStack()
        self._skipped = 0

        keras.utils.set_random_seed(config.seed)
        losses = own.losses or task_of(config).losses(config, data.train)
        self.teachers = teachers = Teachers(config, data.dataset)

        def build():
            model = build_model(config, data.dataset.num_classes, data.dataset.class_names)
            task_of(config).start(model, data.train)
            return model

        engine.build(
            build,
            own.optimizer or (lambda model: optimizer_of(config, model)),
            lambda model: teachers.open(losses, model),
            data.preprocess.on_device,
        )
        data.check(engine.model)
        self._warn_of_images([*(each.test for each in few_shot_tasks)])
        self._restore()
        data.description["accepted_after"] = int(self.best.since)
        self.batches = engine.make_batches(data.train_batches(engine.step))
        self.evaluators = create_evaluators(config, engine, data, few_shot_tasks, teachers)
        self.evaluators += own.evaluators
        comparison = doubtful_labels.LabelComparison(config.to_dict(), data.dataset, directory.path)
        shown = config.report and self.evaluators and comparison.is_possible
        self._labels = comparison if shown else None
        self._compared = self._labels_due() if shown else 0

    def _warn_of_images(self, few_shot_splits):
        """Warns of images that are scored and trained the model, its start or a teacher."""
        for split in few_shot_splits:
            split.warn_of_shared(self.data.train)
        scored = [*filter(None, [self.data.eval]), *few_shot_splits]
        for source in (self.config.checkpoint, *self.teachers.sources) if scored else ():
            for run, its_config in runs_behind(source):
                for split in scored:
                    warn_of_trained(split, run, its_config)

    def _describe(self, restored):
        """Adds to the description of the data what else a resumed run has to be given again."""
        config, description = self.config, self.data.description
        before = self.directory.before["data"] if self.directory.before else {}
        named = {
            "losses": self.own.losses,
            "optimizer": self.own.optimizer and type(self.engine.optimizer),
        }
        names = {key: _name_of(each) for key, each in named.items() if each}
        if before and before.get("own", {}) != names:
            raise UsageError(
                f"Expected the losses and optimizer that the run in {self.directory.address} was "
                f"begun with: {before.get('own') or 'those of the config'}. Received: "
                f"{names or 'those of the config'}. Pass the same to training.train."
            )
        description |= {"own": names} if names else {}
        begun = before.get("checkpoint", "") if restored else None
        begun = fingerprint.digest_of_checkpoint(config.checkpoint) if begun is None else begun
        description |= {"checkpoint": begun, "teachers": self.teachers.identity}
        if restored and before.get("teachers", "") != self.teachers.identity:
            raise UsageError(
                f"config.distill.teacher: {config.distill.teacher} is another model than when the "
                "run began. Put it back, or use another --workdir."
            )
        return before

    def _restore(self):
        """Takes the newest saved state, with the evaluations that still compare."""
        config, directory, engine = self.config, self.directory, self.engine
        restored = engine.restore(directory.checkpoints)
        finished = (directory.path / "model.keras").exists()
        has_best = (directory.path / "best.keras").exists()
        agreement_of_workers.check_step(engine)
        before, description = self._describe(restored), self.data.description
        self.best = BestEvaluation(compared_by(config), config.early_stopping.patience, engine.step)
        self.state = LoopState(fingerprint.as_numbers(description), self.best)
        if restored:
            found, now = restored["data"].tolist(), self.state.data.tolist()
            written = fingerprint.as_numbers(before).tolist() if before else now
            if found not in [now, *description["accepted"]]:
                raise UsageError(
                    f"The checkpoints in {directory.checkpoints} are of a run on other data than "
                    "the config.json beside them says. Put those back that belong together, or "
                    "use another --workdir."
                )
            # Evaluations before the data changed are of other images or labels, but in a run that
            # has finished, where names of classes alone may have; of `best.keras` as well.
            is_same = found == written == now
            compare = finished or (is_same and (has_best or not restored["best/step"]))
            self.state.restore(restored, evaluations=compare)
            if is_same and not compare:
                logger.warning(
                    "%s is not there any more: evaluations are compared anew from step %d on.",
                    *(directory.path / "best.keras", engine.step),
                )
        wants_best = config.hand_over == "best" and self.best.step and not has_best
        if wants_best and directory.before and directory.before["hand_over"] != "best":
            raise UsageError(
                f"config.hand_over=best: {directory.path / 'best.keras'} is not there any more. Go "
                "on with --config.hand_over=last."
            )

    def train(self, stop_request: StopRequest, finish: bool = False) -> dict[str, float]:
        engine = self.engine
        try:
            with engine.translated_errors(
                lambda: self.data.unreadable(engine.step, engine.runtime_errors)
            ):
                return self._train(stop_request, finish)
        except OSError as error:
            raise TrainingError(
                f"A file of the run cannot be written after step {engine.step}: "
                f"{first_line(error)}. {engine.last_good()}"
            ) from error

    def _train(self, stop_request, finish):
        config, engine, metrics = self.config, self.engine, {}
        if engine.is_chief:
            if not self.best.step:
                # Left by an evaluation after the last checkpoint.
                (self.directory.path / "best.keras").unlink(missing_ok=True)
            names = [name for evaluator in self.evaluators for name in evaluator.names]
            self.directory.open(engine.step, names, self.data.description)
            self.directory.upload()
            self._say_where_it_begins()
            if not (finish or self._is_over()):
                logger.info("Preparing the model; the first updates take longer.")
        if finish and not self._is_over():
            return self._finish_early()
        last_save = time.monotonic()
        shown = Progress(config.total_steps, engine.step, config.batch_size, engine.is_chief)
        with shown as progress:
            while not self._is_over():
                count = self._next_boundary() - engine.step
                wants_save = time.monotonic() - last_save > 60 * config.checkpoint_every_minutes
                self._profile()
                start = time.monotonic()
                stop = bool(stop_request.received)
                report = engine.train(self.batches, count, save=wants_save, stop=stop)
                self._check(report)
                self.state.add(count, report)
                progress.advance(engine.step, time.monotonic() - start, report.loss)

                due = [each for each in self.evaluators if self._is_due(each.every_steps)]
                if due or self._is_due(config.log_every_steps):
                    summary = self._summary(progress.images_per_second())
                    found = self._evaluate(due)
                    # If these have ended the run, the other evaluators are due as well.
                    late = [each for each in self.evaluators if self._is_due(each.every_steps)]
                    found |= self._evaluate([each for each in late if each not in due])
                    metrics = summary | found
                    if self._is_time_for_labels():
                        # All processes enter, as the averages are gathered from all.
                        with engine.averaged_weights() as model:
                            self._compare_labels(model)
                    progress.log(metrics, self._in_words(found))
                    self._report_skipped()
                    if engine.is_chief:
                        self.directory.log(engine.step, metrics)
                        for log in self.own.loggers:
                            log(engine.step, metrics)
                if report.save or report.stop or self._is_due(config.checkpoint_every_steps):
                    self.directory.wait()
                    engine.save(self.state.arrays(), wait=report.stop)
                    self.directory.upload(wait=report.stop)
                    last_save = time.monotonic()
                if report.stop:
                    self._report_replaced()
                    raise Interrupted(
                        f"Stopped on request after step {engine.step} of {config.total_steps}, "
                        "with the state saved. Run the same again to resume, or with "
                        f"{'finish=True' if any(self.own) else '--finish'} to end the run here.",
                        stop_request.received,
                    )
        if engine.step < config.total_steps:
            logger.info(
                "The run ends after step %d of %d: %s was not better in %d evaluations.",
                *(engine.step, config.total_steps, self.best.metric.column, self.best.patience),
            )
        self._report_replaced()
        self._finish()
        return {"step": engine.step, **metrics}

    def _finish_early(self):
        """Ends the run at the step of its last state, with the better of last and best weights."""
        step, metrics = self.engine.step, {}
        known = read_metrics(self.directory.path / "metrics.csv").get(self.best.metric.column, ())
        if self.evaluators and step not in dict(known):
            metrics = self._evaluate(self.evaluators, keep=False)
            if self.engine.is_chief:
                self.directory.log(step, metrics)
        logger.info(
            "Finished early, after step %d of %d. The command that began the run goes on with it.",
            *(step, self.config.total_steps),
        )
        self._finish()
        return {"step": step, **metrics}

    def _next_boundary(self):
        """Returns the step that the next call runs to, at most to where something is due."""
        config, step = self.config, self.engine.step
        every_steps = [config.log_every_steps, config.checkpoint_every_steps]
        every_steps += [evaluator.every_steps for evaluator in self.evaluators]
        ends = [(step // every + 1) * every for every in every_steps if every > 0]
        ends += [end for end in self.profile if end > step]
        return min(step + config.steps_per_call, config.total_steps, *ends)

    def _is_due(self, every_steps):
        return self._is_over() or (every_steps > 0 and self.engine.step % every_steps == 0)

    def _is_over(self):
        return self.engine.step >= self.config.total_steps or self.best.is_over()

    def _check(self, report: Report):
        if report.bad_step < 0:
            return
        raise Diverged(
            f"The loss or its gradient became infinite, NaN or larger than config.loss_limit="
            f"{self.config.loss_limit:g} in step {report.bad_step}. {self.engine.last_good()} "
            "Lower optimizer.base_lr, lengthen optimizer.warmup_steps or set optimizer.clip_norm."
        )

    def _summary(self, images_per_second):
        loss, norm = self.state.take_means()
        return {
            "loss": loss,
            "learning_rate": self.engine.learning_rate,
            "gradient_norm": norm,
            "images_per_second": images_per_second,
        }

    def _in_words(self, values):
        """Returns {title: text} of what people follow: the metric that is compared, few-shot."""
        main, of_tasks = compared_by(self.config), {*METRICS, COUNT}
        shown = {name: f"{values[name]:.4g}" for name in values if name not in of_tasks}
        if main.column in values:
            title = main.title if main.is_share else f"{main.title} of the evaluation"
            shown = {title: main.text(values[main.column])} | shown
        return shown

    def _report_skipped(self):
        counter = self.data.skip_counter
        found = counter.examples if counter else {}
        if len(found) > self._skipped:
            one = len(found) == 1
            images = "1 unreadable image is" if one else f"{len(found):,} unreadable images are"
            logger.warning("%s skipped, such as %s.", images, next(iter(found)))
        self._skipped = len(found)

    def _report_replaced(self):
        try:
            self.data.dataset.require_unchanged()
        except TrainingError as error:
            logger.warning("%s What was there before was read as well.", error)

    def _evaluate(self, evaluators: Sequence[Evaluator], keep: bool = True) -> dict[str, float]:
        if not evaluators:
            return {}
        values: dict[str, float] = {}
        with self.engine.averaged_weights() as model:
            for evaluator in evaluators:
                if evaluator.distributed or self.engine.is_chief:
                    found = dict(evaluator.run(model))
                    if unknown := found.keys() - set(evaluator.names):
                        raise UsageError(
                            f"Expected {type(evaluator).__name__} to measure what its `names` "
                            f"list: {', '.join(evaluator.names)}. Received: {', '.join(unknown)}."
                        )
                    values |= found
            better = self.best.update(values, self.engine.step)
            if better and not keep:
                # The saved state, from which the run may go on, knows the file as it is.
                self.best.model = float("nan")
            elif better and self.engine.is_chief:
                self.directory.save_model(model, "best.keras")
                self.best.model = self.directory.identity_of("best.keras")
            if self._is_time_for_labels() or self._is_over() or not keep:
                self._compare_labels(model)
        return values

    def _labels_due(self):
        return self._labels.times_due(self.engine.step * self.config.batch_size)

    def _is_time_for_labels(self):
        return bool(self._labels) and self._compared < self._labels_due()

    def _compare_labels(self, model):
        """Adds what features show of labels; where it is not yet time, if nothing was added yet."""
        if self._labels:
            is_time, self._compared = self._is_time_for_labels(), self._labels_due()
            if self.engine.is_chief and (is_time or not self._labels.kept(self.state.data)):
                source = KerasFunction(model, identified=False)
                self._labels.add(source, self.state.data, self.engine.step)

    def _say_where_it_begins(self):
        step, total = self.engine.step, self.config.total_steps
        if self._is_over():
            logger.info(
                "The run has already finished, at step %s. To train its model further, start "
                "another run with a new --workdir, --config.checkpoint=%s and "
                "--config.checkpoint_head=keep.",
                *(f"{step:,}", self.directory.address),
            )
        elif step:
            logger.info("Resumed from step %d of %d.", step, total)
        before = self.directory.before or self.config
        if before["total_steps"] != total:
            was, length = (each["optimizer"]["total_steps"] for each in (before, self.config))
            schedule = f"stays that of {length} updates"
            if was != length:
                schedule = f"is that of {length} updates from now on: another than a whole run's"
            logger.warning(
                "The run ends at step %d instead of %d. The schedule of its learning rate, now "
                "%.3g, %s.",
                *(total, before["total_steps"], self.engine.learning_rate, schedule),
            )

    def _finish(self):
        folder = self.directory.path
        # Without best.keras, the run had finished before and handed it over.
        file = "best.keras" if (folder / "best.keras").exists() else "model.keras"
        is_best = bool(self.best.step) and self.directory.identity_of(file) == self.best.model
        hands_over_best = self.config.hand_over == "best" and is_best
        with self.engine.averaged_weights() as model:
            if self.engine.is_chief and not hands_over_best:
                self.directory.save_model(model)
        if self.engine.is_chief and hands_over_best:
            handed_over = load_model(folder / file).model
            # Classes may have been renamed since.
            handed_over.class_names = self.engine.model.class_names
            self.directory.save_model(handed_over)
        if self.engine.is_chief and self.best.step:
            last_is_best = self.best.step == self.engine.step
            self._say_model(hands_over_best or last_is_best, is_best)
            if not (is_best or last_is_best):
                logger.warning("%s was removed or replaced.", folder / "best.keras")
        if self.engine.is_chief and self.data.eval and task_of(self.config).finishes(self.config):
            self._finish_model()
        if self.engine.is_chief and self.config.report:
            logger.info("Drawing report.html")
            report_run(folder, dataset=self.data.dataset)
        # Nobody leaves before the chief has written everything.
        self.engine.gather("")

    def _finish_model(self):
        """Adds to `model.keras` what its task takes from the held-out images, if anything."""
        config, source = self.config, load_model(self.directory.path)
        batches = source.batches(self.data.eval, config.eval_preprocess, config.eval_batch_size)
        found = task_of(config).finish(source, config, batches, self.data.dataset)
        for what, how in found.items():
            logger.info("model.keras has %s: %s.", what, how)
        if found:
            self.directory.save_model(source.model)

    def _say_model(self, has_best, is_best):
        """Says which weights `model.keras` has, what they reach, and which `best.keras` has."""
        best, series = self.best, read_metrics(self.directory.path / "metrics.csv")
        metric, step = best.metric, int(best.step if has_best else self.engine.step)
        values, counts = (dict(series.get(each, ())) for each in (metric.column, COUNT))
        said = f"model.keras has the weights of step {step}, the {'best' if has_best else 'last'}"
        if step in values:
            count = int(counts[step])
            images = "1 image" if count == 1 else f"{count:,} images"
            said += f": {metric.title} {metric.text(values[step])} on {images}"
            margin = metric.margin(values[step], count)
            said += f", 95 % interval {margin}" if margin else ""
        if not has_best:
            said += f"; {'best.keras has' if is_best else 'not'} those of step {best.step:.0f}, "
            said += f"the best: {metric.text(metric.score(best.score))}"
        logger.info("%s.", said)

    def _profile(self):
        if self.engine.step in self.profile[1:]:
            self.profiling.close()
        elif self.engine.step in self.profile and self.engine.is_chief:
            self.profiling.enter_context(self.engine.profile(self.directory.tensorboard))
