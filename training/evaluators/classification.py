"""Classification accuracy and loss of a model on every image of a split."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import keras
import numpy as np
from ml_collections import ConfigDict

from training.data.skip_counter import SkipCounter
from training.engines.base import Engine, MakeDataset, PrepareImages
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
        skip_counter: SkipCounter,
    ) -> "ClassificationEvaluator | None":
        """Returns the evaluator of `config.eval_split`, or None without such a split."""
        if not config.eval_split:
            return None
        from training.data import pipeline
        from training.data.preprocessing.preprocess import Preprocess

        def make_dataset(num_input_pipelines, input_pipeline_id):
            return pipeline.eval_dataset(
                name=config.dataset,
                split=config.eval_split,
                preprocess=config.eval_preprocess,
                batch_size=config.eval_batch_size,
                data_dir=config.data_dir or None,
                num_input_pipelines=num_input_pipelines,
                input_pipeline_id=input_pipeline_id,
                on_error=config.on_error,
                skip_counter=skip_counter,
                reduced_decoding=config.reduced_decoding.eval,
            )

        prepare_images = Preprocess(config.eval_preprocess).on_device
        every_steps = config.eval_every_steps
        return cls(engine, loss, make_dataset, prepare_images, every_steps=every_steps)

    def run(self, model: keras.Model) -> Iterator[tuple[str, float]]:
        """Yields the metrics of the engine's `model`, equal in all processes."""
        for name, value in accuracy_metrics.means(self._split_sums()).items():
            yield f"eval_{name}", value


def evaluate(
    model: Callable, dataset: Iterable[Mapping], *, loss: str = "softmax"
) -> dict[str, int | float | np.ndarray]:
    """Returns the accuracy of a model of any kind on every image of a data set.

    Args:
        model: a `keras.Model`, or any callable from a batch of images to (batch, classes) logits:
            a loaded TF-Hub module, a `hub.KerasLayer`, a function.
        dataset: batches of `{"image", "label", "mask"}`; label (batch, classes), positive at each
            label of the image; mask (batch,), 0 for padding, may be absent.
        loss: `"softmax"` or `"sigmoid"`.

    Returns:
        `count`, the number of images; `top1`, `top5` and the mean `loss`; `confusion`, (classes,
        classes) integers: row the label, column the prediction, over images with one label.
    """
    predict = inference_function(model)
    counted = accuracy_metrics.ClassificationMetrics(loss)
    for batch in dataset:
        counted.update(predict(batch["image"]), batch["label"], batch.get("mask"))
    return counted.result()
