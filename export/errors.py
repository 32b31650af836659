"""The errors of an export."""


class ExportError(ValueError):
    """A model or artifact cannot be used; the message says what was expected and what to do."""


class RuntimeMissing(ExportError):
    """A runtime is not on this machine; the message is one line that says what to install."""
