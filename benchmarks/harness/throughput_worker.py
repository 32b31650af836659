"""The process that measures one model at one image size, so that it may run out of memory.

Reads batch sizes from standard input, one a line, and answers each with a line of JSON:
`{"images_per_second": 12.3}`, or `{"error": "…"}` where the batch does not fit.
"""

import json
import sys


def main(argv):
    """Measures as the JSON object in `argv[0]` says: model, image_size, train, precision, jit."""
    task = json.loads(argv[0])
    import keras
    import tensorflow as tf

    import keras_vit
    from training.evaluators.speed import images_per_second

    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    if task["threads"]:
        tf.config.threading.set_intra_op_parallelism_threads(task["threads"])
    keras.config.set_dtype_policy(task["precision"])
    model = keras_vit.create_model(task["model"], image_size=task["image_size"])
    print(json.dumps({"device": tf.config.list_logical_devices()[-1].device_type}), flush=True)
    for line in sys.stdin:
        try:
            rate = images_per_second(
                model,
                int(line),
                train=task["train"],
                repeats=task["repeats"],
                jit_compile=task["jit_compile"],
            )
            answer = {"images_per_second": rate}
        except (tf.errors.ResourceExhaustedError, MemoryError) as error:
            answer = {"error": str(error).splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
