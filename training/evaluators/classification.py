"""Classification accuracy and loss of a model on every image of a split."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import keras
import numpy as np
from ml_collections import ConfigDict

from training.data import Split
from training.data.unreadable_examples import SkipCounter
from training.engines.base import Engine, MakeDataset, PrepareImages
from training.errors import UsageError
from training.evaluators import accuracy_metrics
from training.evaluators.frozen_model import inference_function


class ClassificationEvaluator:
    """Evaluates while training, on the devices that train; see `Evaluator`.

    Yields `eval_loss`, `eval_top1`, `eval_top5` and `eval_count`, as those of
    `accuracy_metrics.means`.

    Args:
        engine: that trains, built.
        loss: of `training.recipes.losses`.
        make_dataset: of batches of `{"image", "label", "mask"}`.
        prepare_images: applied to a batch of images on the device, or None.
        every_steps: 0 evaluates after the last step only.
    """

    names: tuple[str, ...] = ("eval_loss", "eval_top1", "eval_top5", "eval_count")
    distributed = True

    def __init__(
        self,
        engine: Engine,
        loss: keras.losses.Loss,
        make_dataset: MakeDataset,
        prepare_images: PrepareImages | None = None,
        *,
        every_steps: int = 0,
    ):
        self.every_steps = every_steps

        def batch_sums(logits, batch):
            return accuracy_metrics.counted_sums(logits, batch["label"], batch["mask"], loss)

        self._split_sums = engine.make_split_sums(batch_sums, make_dataset, prepare_images)

    @classmethod
    def from_config(
        cls,
        config: ConfigDict,
        engine: Engine,
        loss: keras.losses.Loss,
        split: Split,
        skip_counter: SkipCounter,
    ) -> "ClassificationEvaluator":
        """Returns the evaluator of `config.eval_split`, open."""
        preprocess = split.preprocess(config.eval_preprocess, config.reduced_decoding.eval)

        def make_dataset(num_input_pipelines, input_pipeline_id):
            return split.evaluate(
                preprocess,
                batch_size=config.eval_batch_size,
                num_input_pipelines=num_input_pipelines,
                input_pipeline_id=input_pipeline_id,
                on_error=config.on_error,
                skip_counter=skip_counter,
            )

        every_steps = config.eval_every_steps
        return cls(engine, loss, make_dataset, preprocess.on_device, every_steps=every_steps)

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the metrics of the engine's `model`, equal in all processes."""
        for name, value in accuracy_metrics.means(self._split_sums()).items():
            yield f"eval_{name}", value


def evaluate(
    model: Callable,
    dataset: Iterable[Mapping],
    *,
    loss: str = "softmax",
    classes: Sequence[int] | None = None,
) -> dict[str, int | float | np.ndarray]:
    """Returns the accuracy of a model of any kind on every image of a data set.

    Args:
        model: a `keras.Model`, or any callable from a batch of images to (batch, classes) logits:
            a loaded TF-Hub module, a `hub.KerasLayer`, a function.
        dataset: batches of `{"image", "label", "mask"}`; label (batch, classes), positive at each
            label of the image; mask (batch,), 0 for padding, may be absent.
        loss: `"softmax"` or `"sigmoid"`.
        classes: of `class_order`: the output of the model for each class of the labels.

    Returns:
        `count`, the number of images; `top1`, `top5` and the mean `loss`; `confusion`, (classes,
        classes) integers: row the label, column the prediction, over images with one label.
    """
    predict = inference_function(model)
    counted = accuracy_metrics.ClassificationMetrics(loss)
    for batch in dataset:
        logits = predict(batch["image"])
        if classes is not None:
            logits = logits[:, classes]
        counted.update(logits, batch["label"], batch.get("mask"))
    return counted.result()


def class_order(
    of_model: Sequence[str] | None, of_data: Sequence[str] | None, name: str
) -> list[int] | None:
    """Returns which output of a model stands for each class of data; None for all in their order.

    Args:
        of_model: names of the model's classes, or None where they are not known.
        of_data: names of the data's.
        name: of the data.

    Raises:
        UsageError: if the classes are not the same.
    """
    if not of_model or not of_data or list(of_model) == list(of_data):
        return None
    if sorted(of_model) != sorted(of_data):
        raise UsageError(
            f"Expected {name} to have the model's {len(of_model)} classes, "
            f"{_shown(of_model, of_data)}. Found {len(of_data)}, {_shown(of_data, of_model)}. "
            "Rename its classes, or evaluate a model that was trained on them."
        )
    outputs = {each: output for output, each in enumerate(of_model)}
    return [outputs[each] for each in of_data]


def _shown(names, others):
    """Returns some of the names, those first that the others lack."""
    ordered = sorted(names, key=lambda name: name in others)
    return ", ".join(ordered[:5]) + (", …" if len(ordered) > 5 else "")
