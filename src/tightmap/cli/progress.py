"""One line on a terminal that says how a run goes; nothing anywhere else."""

from __future__ import annotations

import math
from typing import Any


class Progress:
    """A callback for solve() with a line of its own on standard error."""

    def __init__(self, enabled: bool, time_limit: float | None) -> None:
        self.enabled = enabled
        self.time_limit = time_limit
        self.status: Any = None
        self.last = -1.0

    def __enter__(self) -> Progress:
        if self.enabled:
            from rich.console import Console

            self.status = Console(stderr=True).status("starting")
            self.status.start()
        return self

    def update(self, info: Any) -> None:
        if info.elapsed - self.last < 0.1:
            return
        self.last = info.elapsed
        text = f"iteration {info.iteration}  energy {info.energy:.8g}"
        if math.isfinite(info.lower_bound):
            text += f"  bound {info.lower_bound:.8g}  gap {info.energy - info.lower_bound:.3g}"
        text += f"  {info.elapsed:.1f} s" + (f" of {self.time_limit:g}" if self.time_limit else "")
        self.status.update(text)

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()
