"""A helper process that ends when the process that started it is gone, whatever ended that one.

The starter keeps the writing end of a pipe open; when the helper finds the pipe broken, nobody waits for it any more.
Where the kernel can do the same at once, it does: a library that keeps the interpreter's lock stops all threads.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress


def die_with_parent() -> None:
    """Have the kernel end this process with the thread that started it, where there is such a thing."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
