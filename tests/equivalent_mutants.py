"""Mutants that no test can notice, for `tests/mutants.py`: {(file, line): why}."""

EQUIVALENT = {
    (
        "training/engine/tensorflow.py",
        "return dataset.rebatch(size // replicas, drop_remainder=True)",
    ): "batches are multiples of the replicas, so none is left over",
    (
        "training/prediction/predictor.py",
        "for number, row in zip(found, self._rows(found, images, pictures), strict=True):",
    ): "each image of the batch is then read again alone, and gives the same row",
    (
        "export/tflite/flatbuffer.py",
        "builder.PrependUOffsetTRelativeSlot(position, offset, 0)",
    ): "the offset that is left out, and no offset is 0 or 1",
    (
        "benchmarks/compare_pipelines.py",
        "for _ in range(WARM_UP_BATCHES):",
    ): "what warms up changes times only",
}
