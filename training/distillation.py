"""Distillation: a student learns the outputs of teachers (Beyer et al., 2022; arXiv 2106.05237).

Teachers see the images that the student sees, after augmentation and mixup. Their weights are
placed like the student's, do not train, and stand in no checkpoint.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
from keras import ops
from ml_collections import ConfigDict

from keras_vit.models.image_model import ImageModel
from keras_vit.name_suggestions import require_one_of
from keras_vit.type_hints import Tensor

from .data import Dataset
from .data.run_data import RunData
from .engine.engine_interface import Engine
from .engine.update import Batch, Objective, is_seed
from .errors import UsageError
from .inference.open_model import load_model, require_ours
from .io.remote_stores import local_file
from .tasks import COUNTED
from .tasks.classification.evaluation import class_order

logger = logging.getLogger("keras_vit")

# Below it the logarithm of a teacher's probability is that of this number.
_LEAST = 1e-8
# The endpoints of a student of two heads, for labels and for teachers.
_HEADS = ("class_logits", "distillation_logits")


def _kl(teacher, student, temperature):
    """T² KL(softmax(t / T), softmax(s / T)), whose gradient does not shrink as T grows."""
    target = ops.softmax(teacher / temperature, axis=-1)
    learned = ops.log_softmax(student / temperature, axis=-1)
    of_target = ops.log(ops.maximum(target, _LEAST))
    return temperature**2 * ops.sum(target * (of_target - learned), axis=-1)


def _soft(teacher, student, temperature):
    """DeiT's mean over the classes of the summands of `_kl`."""
    return _kl(teacher, student, temperature) / student.shape[-1]


def _hard(teacher, student, temperature):
    """Cross-entropy with the teacher's first class."""
    best = ops.one_hot(ops.argmax(teacher, axis=-1), student.shape[-1])
    return -ops.sum(best * ops.log_softmax(student, axis=-1), axis=-1)


def _l2(teacher, student, temperature):
    """Sum over classes of the squared differences of logits."""
    return ops.sum(ops.square(teacher - student), axis=-1)


LOSSES = {"kl": _kl, "soft": _soft, "hard": _hard, "l2": _l2}


def distillation_loss(
    kind: str = "kl", temperature: float = 1.0
) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a loss of a student beside its teacher.

    Args:
        kind: "kl", T² times the divergence of the softmaxes at temperature T; "soft", DeiT's, that
            over the number of classes; "hard", cross-entropy with the class of the teacher's
            largest logit; "l2", the squared distance of the logits.
        temperature: T > 0, of "kl" and "soft".

    Returns:
        A function of (teacher_logits, student_logits), both (batch, classes), to the losses,
        float32 (batch,).

    Raises:
        ValueError: for another kind, or a temperature that is not positive.
    """
    require_one_of("kind", kind, LOSSES)
    if not temperature > 0:
        raise ValueError(f"Expected a temperature above 0. Received: {temperature}.")

    def loss(teacher_logits: Tensor, student_logits: Tensor) -> Tensor:
        teacher, student = (ops.cast(each, "float32") for each in (teacher_logits, student_logits))
        return LOSSES[kind](teacher, student, temperature)

    return loss


class Teachers:
    """The teachers of a run, for the classes of its data set.

    Args:
        config: a complete config.
        dataset: the run's.
    """

    def __init__(self, config: ConfigDict, dataset: Dataset):
        self._settings, self._dataset = config.distill, dataset
        self.sources = [*filter(None, map(str.strip, config.distill.teacher.split(",")))]
        self.identity = ""
        self.give_logits = bool(self.sources) and config.distill.loss != "none"
        self._models: list[tuple[keras.Model, list[int] | None]] = []

    def open(self, labeled: Callable[..., Tensor], student: keras.Model) -> Objective:
        """Opens the teachers where the engine makes weights; returns what the student minimizes.

        It is `label_weight` times `labeled` and, for the rest, the sum over the teachers of
        their losses; of a student with classifier="distilled" the first is of the class head and
        the rest of the distillation head, as DeiT has it. Projections of features train with the
        student. Raises `UsageError` for a teacher of other classes or without such features, or if
        one of two heads would learn nothing; `ValueError` or `FileNotFoundError` for a teacher
        that cannot be opened.
        """
        digest = hashlib.sha256()
        for source in self.sources:
            found = _opened(source, self._dataset.num_classes if self.give_logits else None)
            digest.update(found.identity.encode())
            order = self._order(source, found) if self.give_logits else None
            self._models.append((found.model, order))
        if not self._models:
            return Objective(labeled)
        self.identity = digest.hexdigest()
        for source, (teacher, _) in zip(self.sources, self._models, strict=True):
            if teacher.license:
                logger.warning(
                    "The student learns from %s, under %s, which does not allow every use: "
                    "model.keras says so, and what is made of it.",
                    *(source, teacher.license),
                )
        known = [student.license, *(teacher.license for teacher, _ in self._models)]
        student.license = " and ".join(dict.fromkeys(filter(None, known))) or None
        share, kind = self._settings.label_weight, self._settings.loss
        heads = _HEADS if student.arguments.get("classifier") == "distilled" else ("output",)
        if heads == _HEADS and not (share and self.give_logits):
            raise UsageError(
                "config.distill.label_weight: expected more than 0 (DeiT has 0.5), and a "
                'distill.loss of logits, for a model with classifier="distilled", which has a '
                f"head for each. Received: {share:g}, {kind}."
            )
        distance = distillation_loss(kind, self._settings.temperature) if self.give_logits else None
        pairs = _pairs(self._settings.features)
        projections = [
            [Projection(f"{number}_{place}", student, teacher, *pair) for place, pair in pairs]
            for number, (teacher, _) in enumerate(self._models)
        ]
        names = [*heads, *(mine for _, (mine, _) in pairs)]

        def losses(model: keras.Model, batch: Batch) -> Tensor:
            student, taught = model.up_to(names)(batch["image"], training=True), []
            for teacher, own in zip(self.outputs(batch["image"]), projections, strict=True):
                if distance:
                    taught.append(distance(teacher["output"], student[heads[-1]]))
                weight = self._settings.features_weight
                taught += [weight * each.losses(student, teacher) for each in own]
            if not share:
                return sum(taught)
            of_labels = labeled(lambda *images, **training: student[heads[0]], batch)
            return share * of_labels + (1 - share) * sum(taught)

        weights = [each for model, _ in self._models for each in model.weights if not is_seed(each)]
        trained = [each for own in projections for one in own for each in one.layer.weights]
        return Objective(losses, weights, trained)

    def _order(self, source: str, found: Any) -> list[int] | None:
        classes, shape = self._dataset.num_classes, found.model.output_shape
        if shape[1:] != (classes,):
            raise UsageError(
                f"config.distill.teacher: expected a classifier of the {classes} classes of "
                f"{self._dataset.name}. Received: {source}, with an output of {shape}."
            )
        return class_order(found.model.class_names, self._dataset.class_names, self._dataset.name)

    def outputs(self, images: Tensor) -> list[dict[str, Tensor]]:
        """Returns of each teacher "output", if its loss needs it, and features by name.

        "output" are logits, (batch, classes) float32, in the order of the data's classes. `images`
        are (batch, height, width, channels) in [-1, 1]; they are resized to the size of a teacher
        that takes another.
        """
        found, names = [], ["output"] * self.give_logits
        names += [theirs for _, (_, theirs) in _pairs(self._settings.features)]
        for model, order in self._models:
            size = model.input_shape[1:3]
            resized = images
            if None not in size and size != tuple(images.shape[1:3]):
                resized = ops.image.resize(images, size, "bilinear", antialias=True)
            outputs = model.up_to(names)(resized, training=False)
            if self.give_logits:
                logits = ops.cast(outputs["output"], "float32")
                outputs["output"] = logits if order is None else ops.take(logits, order, axis=-1)
            found.append(outputs)
        return found

    def batch_sums(self, model: keras.Model, batch: Batch) -> Tensor:
        """Returns (3,) float32: teachers' hits, agreements and number of images that count.

        The class of the teachers is that of the largest mean of their probabilities.
        """
        counted, labels = batch[COUNTED], batch["label"]
        outputs = self.outputs(batch["image"])
        mean = sum(ops.softmax(each["output"], axis=-1) for each in outputs)
        theirs = ops.argmax(mean, axis=-1)
        own = ops.argmax(ops.cast(model(batch["image"], training=False), "float32"), axis=-1)
        is_label = ops.take_along_axis(ops.cast(labels > 0, "float32"), theirs[:, None], axis=-1)
        agreed = ops.cast(ops.equal(theirs, own), "float32")
        each = ops.stack([is_label[:, 0], agreed, ops.ones_like(counted)])
        return ops.sum(counted * each, axis=-1)


class TeacherEvaluator:
    """Evaluates the teachers of a run beside the student, on `config.eval_split`."""

    distributed = True
    names: tuple[str, ...] = ("eval_teacher_top1", "eval_teacher_agreement")

    def __init__(self, teachers: Teachers, config: ConfigDict, engine: Engine, data: RunData):
        self.every_steps = config.eval_every_steps
        self._split_sums = engine.make_split_sums(
            teachers.batch_sums, data.eval_batches, data.eval_preprocess.on_device
        )

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the teachers' accuracy, and the share of images where the student agrees."""
        *sums, count = self._split_sums()
        for name, value in zip(self.names, sums, strict=True):
            yield name, float(value / count)


class Projection:
    """The squared distance of a student's features, linearly projected, from a teacher's.

    Features are endpoints. Of tokens those of patches count, and a teacher's grid is resized to the
    student's.

    Args:
        name: of its layer, which trains.
        student, teacher: the models.
        mine, theirs: names of their endpoints.
    """

    def __init__(self, name: str, student: ImageModel, teacher: ImageModel, mine: str, theirs: str):
        self._sides = (student, mine), (teacher, theirs)
        for model, feature in self._sides:
            if feature not in model.endpoints:
                known = ", ".join(model.endpoints)
                raise UsageError(
                    f"config.distill.features: expected STUDENT=TEACHER, names of {model.name}'s "
                    f"endpoints, {known}. Received: {feature}."
                )
        own, its = (_as_grid(model, model.endpoints[end]).shape for model, end in self._sides)
        if len(own) != len(its):
            raise UsageError(
                "config.distill.features: expected two of patches, or two of whole images. "
                f"Received: {mine} of shape {own}, and {theirs} of {its}."
            )
        self.layer = keras.layers.Dense(its[-1], dtype="float32", name=f"projection_{name}")
        self.layer.build((None, own[-1]))

    def losses(self, student: Mapping[str, Tensor], teacher: Mapping[str, Tensor]) -> Tensor:
        """Returns (batch,) float32, means over places and channels, of both sides' outputs."""
        found = zip((student, teacher), self._sides, strict=True)
        mine, theirs = (_as_grid(model, outputs[end]) for outputs, (model, end) in found)
        mine = self.layer(mine)
        if mine.shape[1:-1] != theirs.shape[1:-1]:
            theirs = ops.image.resize(theirs, mine.shape[1:3], "bilinear", antialias=True)
        return ops.mean(ops.square(mine - theirs), axis=[*range(1, len(mine.shape))])


def _as_grid(model, features):
    """Returns tokens as (batch, rows, columns, channels), without those before the patches'."""
    features = ops.cast(features, "float32")
    if len(features.shape) != 3:
        return features
    rows, columns = model.grid_size
    patches = features[:, features.shape[1] - rows * columns :]
    return ops.reshape(patches, (-1, rows, columns, features.shape[-1]))


def _pairs(features):
    """Returns [(number, (student's endpoint, teacher's endpoint))] of config.distill.features."""
    pairs = (each.partition("=") for each in features.split(",") if each.strip())
    return [*enumerate((mine.strip(), (theirs or mine).strip()) for mine, _, theirs in pairs)]


def _opened(source, num_classes):
    """Opens a teacher: what `load_model` takes, or MODEL=CHECKPOINT for a checkpoint."""
    name, _, file = source.rpartition("=")
    with local_file(file) as path:
        loaded = load_model(path, name=name or None, num_classes=num_classes if name else None)
    require_ours(loaded)
    return loaded
