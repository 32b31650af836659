"""The training loop: from a config to a run directory, through any interruption."""

import contextlib
import logging
import time

import keras
import tensorflow as tf

import keras_vit
from training import config_keys
from training.data import pipeline, random_access, skipping
from training.data.preprocessing.pipeline_text import Preprocess
from training.engines.tensorflow import strategies
from training.engines.tensorflow.checkpoints import Checkpoints
from training.engines.tensorflow.evaluation_step import EvaluationLoop
from training.engines.tensorflow.train_step import TrainSteps
from training.errors import Diverged, Interrupted, TrainingError, UsageError
from training.evaluators.few_shot import FewShotEvaluator
from training.loop.interruption import StopRequest
from training.loop.progress import Progress
from training.loop.run_directory import RunDirectory
from training.recipes.losses import build_loss
from training.recipes.optimizers import build_optimizer
from training.reporting.run_report import report_run

logger = logging.getLogger("training")


def train(config, workdir):
    """Trains the model that `config` describes, or resumes where an earlier call was stopped.

    A run that was killed, at any moment, and started again ends with the same weights, bit for
    bit, as one that was not, on the same hardware; on other hardware or under another strategy
    up to rounding.

    Args:
        config: `ml_collections.ConfigDict` or dict with keys of `configuration.default_config`.
        workdir: run directory; created once the config, model and data are known to work.

    Returns:
        A dict of the last logged metrics (see `run_directory.METRICS`).

    Raises:
        UsageError: before any training, for a config, environment or directory that cannot work.
        TrainingError: if the loss is not finite, a file cannot be written, a worker is lost.
        Interrupted: after SIGTERM or SIGINT, with the state saved.
    """
    config = config_keys.complete(config)
    with _precision(config.precision):
        try:
            run = _Run(config, workdir)
        except (ValueError, OSError) as error:
            raise UsageError(str(error)) from error
        # Only now, because TensorFlow's servers bring a handler of SIGTERM with them.
        with run, StopRequest() as stop_request:
            return run.train(stop_request)


@contextlib.contextmanager
def _precision(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def build_model(config, num_classes):
    """Returns the model of `config.model`, with the weights of `config.checkpoint` if any.

    Transfer removes the whole head, two layers after pre-training, for a single new one (appendix
    B.1.1), unless `config.checkpoint_head` is `"keep"`.
    """
    arguments = {"num_classes": num_classes} | config.model.to_dict()
    name = arguments.pop("name", "")
    try:
        if name:
            model = keras_vit.create_model(name, **arguments)
        else:
            model = keras_vit.VisionTransformer(**arguments)
    except TypeError as error:
        raise UsageError(f"config.model: {error}") from error
    if config.checkpoint:
        head = ("head",) if config.model.get("representation_size") else ("head", "pre_logits")
        skip = () if config.checkpoint_head == "keep" else head
        keras_vit.load_checkpoint(model, config.checkpoint, skip=skip)
    if config.masked.target:
        return keras_vit.MaskedPatchPrediction(model, **config.masked.to_dict())
    return model


class _Run:
    """One run, prepared by the constructor, which writes nothing."""

    def __init__(self, config, workdir):
        self.config = config
        self.strategy, self.watch = strategies.create_strategy(config)
        self.chief = strategies.is_chief(self.strategy)

        source = random_access.open_source(config.dataset, config.train_split, config.data_dir)
        config_keys.derive_steps(config, source.num_examples)
        self.directory = RunDirectory(workdir, config)
        self.directory.check()
        strategies.check_batch_size(
            "batch_size", config.batch_size, self.strategy, config.accumulation_steps
        )
        strategies.check_batch_size("eval_batch_size", config.eval_batch_size, self.strategy)
        profile = _profile_range(config.profile)

        keras.utils.set_random_seed(config.seed)
        loss = build_loss(config.loss)
        with self.strategy.scope():
            self.model = build_model(config, source.spec.num_classes)
            self.optimizer = build_optimizer(
                config.optimizer.to_dict() | {"ema_decay": config.ema_decay}
            )
            self.optimizer.build(self.model.trainable_variables)
        self.steps = TrainSteps(
            self.strategy,
            self.model,
            self.optimizer,
            loss,
            batch_size=config.batch_size,
            seed=config.seed,
            accumulation_steps=config.accumulation_steps,
            jit_compile=config.jit_compile,
            loss_limit=config.loss_limit,
            prepare_images=Preprocess(config.train_preprocess).on_device,
        )
        self.best = tf.Variable(-1.0, trainable=False)
        # Steps, losses and gradient norms since the last row of metrics.
        self.sums = tf.Variable(tf.zeros([3], tf.float64), trainable=False)
        self.checkpoints = Checkpoints(
            self.directory.checkpoints,
            {
                "model": self.model,
                "optimizer": self.optimizer,
                "best": self.best,
                "sums": self.sums,
            },
            keep=config.keep_checkpoints,
            writes=self.chief,
        )
        self.step = self.checkpoints.restore() or 0
        if not strategies.agree(self.strategy, self.step):
            raise UsageError(
                f"This worker found the checkpoint of step {self.step} in "
                f"{self.directory.checkpoints}, another worker a different one. "
                "All workers need the same --workdir on a shared file system."
            )
        if self.watch:
            self.watch.resume_hint = "Training resumes from the last checkpoint that was saved. "
        self.profile = profile
        self._profiling = False
        self._skipped = 0
        self.evaluation = None
        if config.eval_split:
            self.evaluation = EvaluationLoop(
                self.strategy,
                self.model,
                loss,
                self._eval_dataset,
                prepare_images=Preprocess(config.eval_preprocess).on_device,
            )
        self.few_shot = None
        if config.few_shot.datasets and self.chief:
            self.few_shot = FewShotEvaluator(
                config.few_shot.datasets.split(","),
                shots=config.few_shot.shots,
                data_dir=config.data_dir or None,
            )
        dataset = strategies.distribute(self.strategy, self._train_dataset)
        self.batches = iter(dataset)

    def _train_dataset(self, num_input_pipelines, input_pipeline_id):
        config = self.config
        return pipeline.train_dataset(
            name=config.dataset,
            split=config.train_split,
            preprocess=config.train_preprocess,
            batch_size=config.batch_size,
            data_dir=config.data_dir or None,
            seed=config.seed,
            start_step=self.step,
            num_input_pipelines=num_input_pipelines,
            input_pipeline_id=input_pipeline_id,
            mixup_p=config.mixup_p,
            on_error=config.on_error,
        )

    def _eval_dataset(self, num_input_pipelines, input_pipeline_id):
        config = self.config
        return pipeline.eval_dataset(
            name=config.dataset,
            split=config.eval_split,
            preprocess=config.eval_preprocess,
            batch_size=config.eval_batch_size,
            data_dir=config.data_dir or None,
            num_input_pipelines=num_input_pipelines,
            input_pipeline_id=input_pipeline_id,
            on_error=config.on_error,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._stop_profile()
        self.directory.close()
        if self.watch:
            self.watch.stop()
            if self.chief:
                # The others report to the chief's server until they end.
                self.watch.wait_until_gone(5.0)

    def train(self, stop_request):
        try:
            return self._train(stop_request)
        except tf.errors.OpError as error:
            message = _reason(error)
            if self.watch:
                # Give the watch the time to name the worker that was lost.
                time.sleep(10)
                raise TrainingError(
                    f"The workers lost contact after step {self.step}: {message} "
                    f"{self.checkpoints.last_good()} Start all workers again."
                ) from error
            raise TrainingError(
                f"Training failed after step {self.step}: {message} {self.checkpoints.last_good()}"
            ) from error
        except OSError as error:
            raise TrainingError(
                f"A file of the run cannot be written after step {self.step}: {error}. "
                f"{self.checkpoints.last_good()}"
            ) from error

    def _train(self, stop_request):
        config, metrics = self.config, {}
        if self.chief:
            self.directory.open(self.step)
        last_save = time.monotonic()
        with Progress(config.total_steps, self.step, config.batch_size, self.chief) as progress:
            while self.step < config.total_steps:
                count = self._next_boundary() - self.step
                wants_save = time.monotonic() - last_save > 60 * config.checkpoint_every_minutes
                self._profile()
                start = time.monotonic()
                report = self.steps(
                    self.batches, count, save=wants_save, stop=stop_request.received
                )
                self.step += count
                self._check(report)
                self.sums.assign_add([count, count * report.loss, count * report.gradient_norm])
                progress.advance(self.step, time.monotonic() - start, report.loss)

                if any(map(self._is_due, self._reported_every)):
                    metrics = self._summary(progress.images_per_second())
                    if self.evaluation and self._is_due(config.eval_every_steps, at_end=True):
                        metrics |= self._evaluate()
                    if self.few_shot and self._is_due(config.few_shot.every_steps):
                        with self._averaged_weights():
                            metrics |= self.few_shot(self.model)
                    progress.say(metrics)
                    self._report_skipped()
                    if self.chief:
                        self.directory.log(self.step, metrics)
                if report.save or report.stop or self._is_due(config.checkpoint_every_steps):
                    self.checkpoints.save()
                    last_save = time.monotonic()
                if report.stop:
                    raise Interrupted(
                        f"Stopped on request after step {self.step} of {config.total_steps}, with "
                        "the state saved. Run the same command again to resume."
                    )
        self._finish()
        return {"step": self.step, **metrics}

    def _next_boundary(self):
        """Returns the step that the next call runs to: where something is due, at the latest."""
        config = self.config
        ends = [self.step + config.steps_per_call, config.total_steps]
        for every in (*self._reported_every, config.checkpoint_every_steps):
            if every > 0:
                ends.append((self.step // every + 1) * every)
        ends += [end for end in self.profile if end > self.step]
        return min(ends)

    @property
    def _reported_every(self):
        config = self.config
        every = [config.log_every_steps, config.eval_every_steps]
        return [*every, config.few_shot.every_steps] if config.few_shot.datasets else every

    def _is_due(self, every, at_end=True):
        if at_end and self.step == self.config.total_steps:
            return True
        return every > 0 and self.step % every == 0

    def _check(self, report):
        if report.bad_step < 0:
            return
        raise Diverged(
            f"The loss or its gradient became infinite, NaN or larger than config.loss_limit="
            f"{self.config.loss_limit:g} in step {report.bad_step}. {self.checkpoints.last_good()} "
            "Lower optimizer.base_lr, lengthen optimizer.warmup_steps or set optimizer.clip_norm."
        )

    def _summary(self, images_per_second):
        steps, loss, norm = self.sums.numpy().tolist()
        self.sums.assign(tf.zeros_like(self.sums))
        return {
            "loss": loss / steps,
            "learning_rate": float(self.optimizer.learning_rate),
            "gradient_norm": norm / steps,
            "images_per_second": images_per_second,
        }

    def _report_skipped(self):
        skipped = skipping.counter.examples
        if len(skipped) > self._skipped:
            logger.warning(
                "%d unreadable images are skipped, such as %s.", len(skipped), next(iter(skipped))
            )
        self._skipped = len(skipped)

    @contextlib.contextmanager
    def _averaged_weights(self):
        """The moving average in place of the weights, if there is one."""
        if not self.optimizer.use_ema:
            yield
            return
        self.optimizer.swap_averages()
        try:
            yield
        finally:
            self.optimizer.swap_averages()

    def _evaluate(self):
        with self._averaged_weights():
            values = self.evaluation()
            if values["top1"] > float(self.best):
                self.best.assign(values["top1"])
                if self.chief:
                    self.directory.save_model(self.model, "best.keras")
        return {f"eval_{name}": value for name, value in values.items()}

    def _finish(self):
        if self.chief:
            with self._averaged_weights():
                self.directory.save_model(self.model)
            report_run(self.directory.path)
        # Nobody leaves before the chief has written everything.
        strategies.agree(self.strategy, 0)

    def _profile(self):
        if not self.profile or not self.chief:
            return
        first, last = self.profile
        if self.step == first:
            tf.profiler.experimental.start(str(self.directory.tensorboard))
            self._profiling = True
        elif self.step == last:
            self._stop_profile()

    def _stop_profile(self):
        if self._profiling:
            tf.profiler.experimental.stop()
            self._profiling = False


def _reason(error):
    """Returns what a TensorFlow error says, without where in a graph it was."""
    places = ("Graph execution error", "Detected at node", "<stack", "File ", "[[", "  ")
    lines = (line.strip() for line in error.message.splitlines())
    said = [line for line in lines if line and not line.startswith(places)]
    return (said or [type(error).__name__])[0][:300]


def _profile_range(text):
    if not text:
        return ()
    first, _, last = text.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise UsageError(f'config.profile: expected "FIRST:LAST" steps. Received: {text!r}.')
    return int(first), int(last)
