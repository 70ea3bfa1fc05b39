"""Methods whose work is a generator: it yields a Progress where there is something to report, and None in between.

So that no step lasts much longer than a tenth of a second, however large the model is, and the method itself reads from
top to bottom.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tightmap.runtime.pace import TimeUp
from tightmap.solvers.base import Progress

STEP_SECONDS = 0.1  # seconds of work after which a step ends


def advance(stages: Iterator[Progress | None]) -> Progress:
    """Work until something is to be reported, or for about a tenth of a second."""
    begin = time.perf_counter()
    try:
        for progress in stages:
            if progress is not None:
                return progress
            if time.perf_counter() - begin > STEP_SECONDS:
                return Progress(iterations=0, pending=True)
    except TimeUp:
        return Progress(iterations=0, pending=True)
    return Progress(done=True, iterations=0)
