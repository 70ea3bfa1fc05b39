"""Refuse an allocation that cannot fit before it is tried, with the estimate in the message."""

from __future__ import annotations

import os

from tightmap.errors import ModelError


def available_bytes() -> int:
    """Memory that can be had now, as far as the system tells; a generous guess where it does not."""
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


def require(needed: float, what: str) -> None:
    """Raise a ModelError when ``needed`` bytes exceed what is available."""
    free = available_bytes()
    if needed > free:
        raise ModelError(f"{what} would need about {needed / 2**30:.1f} GiB, only {free / 2**30:.1f} GiB are available")
