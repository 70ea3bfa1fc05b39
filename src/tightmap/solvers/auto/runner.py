"""The methods of a run of ``auto`` while they are at work, and the run itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tightmap.errors import ModelError
from tightmap.runtime import clock, memory
from tightmap.solvers.auto.plan import Phase
from tightmap.solvers.auto.scheduler import Share
from tightmap.solvers.base import Progress, Solver


@dataclass
class Bout:
    """Some steps of one method: what each of them found, and the seconds that it took."""

    steps: list[tuple[Progress, float]] = field(default_factory=list)
    starting: float | None = None  # seconds of its start, if that was a part of it
    failure: str = ""  # why the method cannot go on: there is not enough memory for it


@dataclass(eq=False)
class Runner:
    """A method at work: its state while it has one, and what it has brought so far."""

    phase: Phase
    share: Share
    solver: Solver | None = None
    start: Callable[[], Any] | None = None  # to be called before its first step
    inner: Any = None
    iterations: int = 0
    rounds: int = 0
    turns: int = 0  # without a time limit, where it takes turns at all
    done: bool = False
    lost: bool = False  # there is not enough memory for it
    until: float = math.inf  # the end of its turn
    seen: float = math.inf  # the lowest energy that it knows of
    brought: float = math.inf  # the lowest energy it reached itself

    def work(self, long: float) -> Bout:
        """One step of its turn, or several that together take so long.  Called on any thread, by one at a time."""
        bout = Bout()
        try:
            self._work(bout, long)
        except ModelError as error:
            bout.failure = str(error)
        except (MemoryError, ValueError, SystemError) as error:
            if not memory.is_lack_of_memory(error):
                raise
            bout.failure = str(error) or "out of memory"
        return bout

    def _work(self, bout: Bout, long: float) -> None:
        assert self.solver is not None
        begin = clock.now()
        if self.start is not None:
            self.inner, self.start = self.start(), None
            bout.starting = clock.now() - begin
        while True:
            before = clock.now()
            progress = self.solver.step(self.inner)
            now = clock.now()
            bout.steps.append((progress, now - before))
            if progress.done or progress.late or now - begin >= long or now >= self.until:
                return
