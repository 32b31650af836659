"""keras-hub's ViT on TensorFlow."""

from benchmarks.libraries import keras_step


def prepare(case):
    keras_step.configure(case)
    import keras_hub

    a = case.arguments
    backbone = keras_hub.models.ViTBackbone(
        image_shape=case.image_shape[1:],
        patch_size=a["patch_size"],
        num_layers=a["num_layers"],
        num_heads=a["num_heads"],
        hidden_dim=a["hidden_size"],
        mlp_dim=a["mlp_dim"],
        dtype=keras_step.policy(case),
    )
    model = keras_hub.models.ViTImageClassifier(backbone, a["num_classes"])
    return keras_step.step_of(model, case), {"parameters": keras_step.parameters(model)}
