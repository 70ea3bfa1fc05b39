"""Shared test set-up: hypothesis without deadlines (compilation counts otherwise), and where the real models are."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "tightmap", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tightmap")

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[1].parent / "shared" / "data"))


def data_file(name: str) -> Path:
    """Path of a real model, or skip with a message where the collection is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in TIGHTMAP_DATA ({DATA})")
    return path


def _heed_interrupts() -> None:
    """A job in the background is started with Ctrl-C ignored, and so would be every process that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        with suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGINT, signal.default_int_handler)


_heed_interrupts()
