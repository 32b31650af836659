"""This package's `inference_function`."""

import keras
import tensorflow as tf

from benchmarks.libraries import batches, keras_vit


def prepare(case):
    from keras_vit import inference_function

    model, facts = keras_vit.build(case)
    for variable in model.variables:
        # As training leaves them: multiplying by ones and adding zeros is optimised away.
        variable.assign(variable + keras.random.normal(variable.shape, 0, 0.02, variable.dtype))
    infer = inference_function(model, batch_size=case.batch)
    images = tf.constant(batches.images(case))
    return lambda: infer(images), facts
