"""This package."""

from benchmarks.peers import keras_step


def prepare(case):
    from keras_vit import VisionTransformer
    from keras_vit.analysis.costs import costs

    keras_step.configure(case)
    model = VisionTransformer(**case.arguments)
    count = costs(model)
    facts = {
        "parameters": keras_step.parameters(model),
        "macs": count.macs,
        "executed_macs": count.executed_macs,
    }
    return keras_step.step_of(model, case), facts
