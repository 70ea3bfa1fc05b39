"""The two errors that bad input gives.  Both are ValueErrors, both say what, where, expected and got."""


class ModelError(ValueError):
    """A model, a file or an array that cannot be used as it is."""


class OptionError(ValueError):
    """An unknown method or option, or a value that an option does not take."""
