"""The error of an export."""


class ExportError(ValueError):
    """A model or artefact cannot be used; the message says what was expected and what to do."""
