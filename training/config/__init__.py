"""The keys of a config, as one table, and configs on the command line."""

from keras_vit.training.config.schema import default_config

__all__ = ["default_config"]
