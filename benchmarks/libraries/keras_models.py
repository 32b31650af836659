"""This package and keras-hub's ViT, on Keras's backend, with the same step."""

import functools
import math
import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

import keras_vit
from benchmarks.libraries import LEARNING_RATE, MOMENTUM, Case
from keras_vit.training.config import schema
from keras_vit.training.engine import create_engine
from keras_vit.training.recipes.optimizer import optimizer_of
from keras_vit.training.tasks import task_of


def ours(case: Case, **arguments: Any) -> tuple[Callable[[], Any], int]:
    """This package's model, with further arguments."""
    keras.utils.set_random_seed(0)
    arguments = arguments | case.arguments | {"dtype": _policy(case)}
    return _step_of(keras_vit.VisionTransformer(**arguments), case)


# The model that recomputes its blocks' activations, and the one without fused attention.
remat = functools.partial(ours, remat=True)
plain_attention = functools.partial(ours, flash_attention=False)


def trainer(case: Case, **distill: Any) -> tuple[Callable[[], Any], int]:
    """An update of this package's trainer, of whose config `distill` is a part."""
    import tensorflow as tf

    from keras_vit.training.distillation import Teachers  # which needs TensorFlow

    keras.utils.set_random_seed(0)
    count, compiler = case.arguments["num_classes"], "on" if case.compiled else "off"
    changes = {"dataset": "noise", "batch_size": case.batch_size, "total_steps": 10**6}
    changes |= {"precision": _policy(case), "jit_compile": compiler, "distill": distill}
    config = schema.complete(changes)
    schema.derive_steps(config, case.batch_size)
    engine = create_engine(config)
    classes: Any = SimpleNamespace(num_classes=count, class_names=None, name="noise")
    engine.build(
        lambda: keras_vit.VisionTransformer(**case.arguments, dtype=_policy(case)),
        functools.partial(optimizer_of, config),
        functools.partial(Teachers(config, classes).open, task_of(config).losses(config, None)),
        lambda images: images,
    )
    batch = {"image": case.images(), "label": np.eye(count, dtype="float32")[case.labels()]}
    batches = engine.make_batches(lambda *_: tf.data.Dataset.from_tensors(batch).repeat())
    trained = engine.model.trainable_variables
    return lambda: engine.train(batches, 1), sum(math.prod(each.shape) for each in trained)


def taught(case: Case) -> tuple[Callable[[], Any], int]:
    """The same, of a student whose teacher is as large."""
    with tempfile.TemporaryDirectory() as folder:
        keras_vit.VisionTransformer(**case.arguments).save(f"{folder}/teacher.keras")
        return trainer(case, teacher=f"{folder}/teacher.keras", label_weight=0.5)


def keras_hub(case: Case) -> tuple[Callable[[], Any], int]:
    """keras-hub's model."""
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    keras.utils.set_random_seed(0)
    a = case.arguments
    backbone = ViTBackbone(
        image_shape=case.image_shape,
        patch_size=a["patch_size"],
        num_layers=a["num_layers"],
        num_heads=a["num_heads"],
        hidden_dim=a["hidden_size"],
        mlp_dim=a["mlp_dim"],
        dtype=_policy(case),
    )
    return _step_of(ViTImageClassifier(backbone, a["num_classes"]), case)


def _policy(case):
    """Returns the name of the Keras dtype policy that the case asks for."""
    if case.precision == "float32":
        return "float32"
    return "bfloat16" if case.mode == "infer" else "mixed_bfloat16"


def _step_of(model, case):
    """Returns a step on one batch, and the parameters, of a model from images to logits."""
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    images, labels = map(keras.ops.convert_to_tensor, (case.images(), case.labels()))
    if keras.config.backend() == "jax":
        return _jax_step(model, loss, optimizer, images, labels, case.mode), parameters
    model.compile(optimizer, loss, jit_compile=case.compiled)
    if case.mode == "infer":
        return lambda: model.predict_on_batch(images), parameters
    return lambda: model.train_on_batch(images, labels), parameters


def _jax_step(model, loss, optimizer, images, labels, mode):
    """Returns a step of one program, without what Keras does around it in Python."""
    import jax

    trained = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]

    def logits_of(trained, images):
        return model.stateless_call(trained, others, images, training=mode == "train")[0]

    if mode == "infer":
        infer = jax.jit(logits_of)
        return lambda: jax.block_until_ready(infer(trained, images))
    optimizer.build(model.trainable_variables)
    state = trained, [variable.value for variable in optimizer.variables]

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, images, labels):
        trained, slots = state
        value, gradients = jax.value_and_grad(
            lambda weights: loss(labels, logits_of(weights, images))
        )(trained)
        return optimizer.stateless_apply(slots, gradients, trained), value

    def step():
        nonlocal state
        state, value = update(state, images, labels)
        return jax.block_until_ready((state, value))

    return step
