"""The version of the package; setup.py reads it."""

__version__ = "0.1.0"
