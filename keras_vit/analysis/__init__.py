"""What the paper looked into inside a trained model (section 4.5, appendices D.6 and D.7)."""

from keras_vit.analysis.rollout import attention_rollout, rollout

__all__ = ["attention_rollout", "rollout"]
