"""The keys of a config, as one table, and configs on the command line."""

from .schema import default_config

__all__ = ["default_config"]
