"""This package's `inference_function`."""

import keras
import tensorflow as tf

from benchmarks.peers import batches, keras_step


def prepare(case):
    import keras_vit
    from keras_vit.analysis.costs import costs

    keras_step.configure(case)
    model = keras_vit.VisionTransformer(**case.arguments)
    count = costs(model)
    facts = {
        "parameters": keras_step.parameters(model),
        "macs": count.macs,
        "executed_macs": count.executed_macs,
    }
    for variable in model.variables:
        # As training leaves them: multiplying by ones and adding zeros is optimised away.
        variable.assign(variable + keras.random.normal(variable.shape, 0, 0.02, variable.dtype))
    infer = keras_vit.inference_function(model, batch_size=case.batch)
    images = tf.constant(batches.images(case))
    return lambda: infer(images), facts
