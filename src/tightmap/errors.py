"""The two errors that bad input gives, and the one of a worker process that is lost.

The first two are ValueErrors; they say what, where, expected and got.
"""


class ModelError(ValueError):
    """A model, a file or an array that cannot be used as it is."""


class OptionError(ValueError):
    """An unknown method or option, or a value that an option does not take."""


class WorkerError(RuntimeError):
    """A process that was solving a model ended without an answer, and so did the one that tried again."""
