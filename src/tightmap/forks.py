"""What no other thread may be in the middle of when this process forks.

A forked child has only the thread that forked.  A lock that another thread held at that moment stays locked in the
child for ever, and what it protects stays half done: a module half imported, a kernel half compiled.  So a fork waits
until that is finished, as it does for the interpreter's own locks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

unforked = threading.RLock()  # held while modules of methods are imported and while kernels are compiled


def _nothing() -> None:
    pass


def at_fork(
    before: Callable[[], object] = _nothing,
    in_parent: Callable[[], object] = _nothing,
    in_child: Callable[[], object] = _nothing,
) -> None:
    """Call these around every fork, where the system has such a thing."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


at_fork(unforked.acquire, unforked.release, unforked.release)
