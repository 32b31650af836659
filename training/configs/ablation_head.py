"""Class token or mean of the tokens, and their learning rates (second version, appendix D.3).

The paper's finding is that the mean of the tokens needs a smaller rate than the class token:
3e-4 instead of 8e-4. The cells keep that ratio.
"""

from keras_vit.training.configs import ablation_base

_SMALLER = 3 / 8


def _cells(scale):
    result = {}
    for name, classifier, ratio in (
        ("token", "token", 1.0),
        ("gap", "gap", 1.0),
        ("gap_small_rate", "gap", _SMALLER),
    ):
        result[name] = ablation_base.config_of_model(scale, {"classifier": classifier})
        result[name].optimizer.base_lr *= ratio
    return result


# The figure shows seven epochs.
STUDY = ablation_base.Study("Class token and global average pooling", _cells, evaluations=7)
get_config = STUDY.get_config
