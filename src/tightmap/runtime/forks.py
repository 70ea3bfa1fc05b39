"""What no other thread may be in the middle of when this process forks.

A forked child has only the thread that forked.  A lock that another thread held at that moment stays locked in the
child for ever, and what it protects stays half done: a module half imported, a kernel half compiled.  So a fork waits
until that is finished, as it does for the interpreter's own locks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

unforked = threading.RLock()  # held while modules of methods are imported
_locks: list[Any] = [unforked]  # in the order in which one may be taken while another is held


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


def wait_before_fork(lock: Any) -> None:
    """A fork waits until no other thread holds this lock either."""
    _locks.append(lock)


def _acquire() -> None:
    for lock in _locks:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_locks):
        lock.release()


at_fork(_acquire, _release, _release)
