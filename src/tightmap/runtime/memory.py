"""Refuse an allocation that cannot fit before it is tried, with the estimate in the message; explain one that failed.

NumPy and compiled kernels raise MemoryError when the system refuses them room, and ValueError when the size is beyond
any address.  Compiled code looks at every allocation before it uses it, and lean kernels cannot allocate at all.
"""

from __future__ import annotations

import os
import sys

from tightmap.errors import ModelError

SMALL = 1 << 22  # bytes that are asked for without a look at what is left, which takes longer than to use them


def available_bytes() -> int:
    """Memory that can be had now: what the system has left, within the limits of the container and of this process."""
    return max(0, min(_system_bytes(), _container_bytes(), _process_bytes()))


def _system_bytes() -> int:
    """What the system has left; a generous guess where it does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 8 << 30


def _container_bytes() -> int:
    """What the control group of this process (a container) has left."""
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limit = int(file.read())
        with open("/sys/fs/cgroup/memory.current", encoding="ascii") as file:
            return limit - int(file.read())
    except (OSError, ValueError):  # no such group, or "max": no limit
        return sys.maxsize


def _process_bytes() -> int:
    """What is left of a limit on the address space of this process (ulimit -v)."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return sys.maxsize
        with open("/proc/self/statm", encoding="ascii") as file:
            return limit - int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return sys.maxsize


def require(needed: float, what: str) -> None:
    """Raise a ModelError when ``needed`` bytes exceed what is available."""
    if needed <= SMALL:
        return
    free = available_bytes()
    if needed > free:
        raise ModelError(f"{what} would need about {needed / 2**30:.1f} GiB, only {free / 2**30:.1f} GiB are available")


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether an exception says that an allocation failed, however it is dressed."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, ValueError):
        return str(error).startswith(("array is too big", "Maximum allowed dimension exceeded"))
    cause = error.__cause__ or error.__context__
    return isinstance(error, SystemError) and cause is not None and is_lack_of_memory(cause)


class guarded:
    """A failed allocation in here becomes a ModelError of one sentence; ``what`` is the method or the step it names."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, MemoryError | ValueError | SystemError) or not is_lack_of_memory(error):
            return
        detail = str(error).strip().rstrip(".").split("\n")[0]
        free = available_bytes() / 2**30
        message = f"{self._what}: not enough memory for this model, {free:.1f} GiB are available"
        raise ModelError(f"{message} ({detail})" if detail else message) from error
