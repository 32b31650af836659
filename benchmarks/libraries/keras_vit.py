"""This package."""

from benchmarks.libraries import keras_step


def build(case):
    """Returns the model and its facts."""
    from keras_vit import VisionTransformer
    from keras_vit.analysis.costs import costs

    keras_step.configure(case)
    model = VisionTransformer(**case.arguments)
    count = costs(model)
    return model, {
        "parameters": keras_step.parameters(model),
        "macs": count.macs,
        "executed_macs": count.executed_macs,
    }


def prepare(case):
    model, facts = build(case)
    return keras_step.step_of(model, case), facts
