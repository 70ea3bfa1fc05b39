"""A run to carry out, and processes that only pretend to."""

from __future__ import annotations

import subprocess
import sys

from tightmap.bench import runner
from tightmap.bench.records import Run

RING = Run("inpainting-n4", "ring-40", "bcd", time_limit=5.0)


def worker_that(monkeypatch, code):
    """Replace the worker by a few lines of Python; the last line of its standard output is the row."""
    real = subprocess.Popen

    def start(command, **options):
        return real([sys.executable, "-c", code], **options)

    monkeypatch.setattr(runner.subprocess, "Popen", start)
