"""One step of a Keras model on TensorFlow, the same for ours and for Keras's own."""

import keras
import tensorflow as tf

from benchmarks.libraries import batches
from benchmarks.libraries.recipe import LEARNING_RATE, MOMENTUM


def policy(case):
    """Returns the name of the Keras dtype policy that the case asks for."""
    if case.precision == "float32":
        return "float32"
    return "bfloat16" if case.mode == "infer" else "mixed_bfloat16"


def configure(case):
    """Prepares TensorFlow and Keras; call it before the model is built."""
    tf.config.threading.set_intra_op_parallelism_threads(case.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy(case))


def step_of(model, case):
    """Returns a function without arguments that runs one step and waits for it."""
    images = tf.constant(batches.images(case))
    if case.mode == "infer":

        @tf.function(jit_compile=case.compiled, autograph=False)
        def forward(images):
            return model(images, training=False)

        return lambda: forward(images).numpy()

    labels = tf.constant(batches.labels(case))
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=case.compiled, autograph=False)
    def update(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return lambda: update(images, labels).numpy()


def parameters(model):
    """Returns the number of trained values."""
    return sum(int(tf.size(variable)) for variable in model.trainable_variables)
