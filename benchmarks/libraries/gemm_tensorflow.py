"""A large matrix product in TensorFlow: the peak that models are held against."""

import tensorflow as tf

SIDE = 2048


def prepare(case):
    tf.config.threading.set_intra_op_parallelism_threads(case.threads)
    left, right = (tf.cast(tf.random.normal((SIDE, SIDE)), case.precision) for _ in range(2))
    return lambda: tf.linalg.matmul(left, right)[0, 0].numpy(), {"flops": 2 * SIDE**3}
