"""The error of an export."""


class ExportError(ValueError):
    """A model or artifact cannot be used; the message says what was expected and what to do."""
