"""The penalty rho while a cycle runs.

The paper's rule ("adaptive penalty" in section 4.2), for cycles with ``stall`` > 0: after I_1 iterations, whenever the
residual r (eq. 30) has not improved for I_2 iterations,

    rho <- beta rho,   I_1 = I_2 = stall,   beta = growth.

All other cycles let it grow all the time, rho <- growth^k rho after k iterations, and faster where the cycle would not
end in its part of the time that is left: labels freeze at about rho = FREEZING kappa, so from rho0 kappa that takes
log(FREEZING / rho0) / log(growth) iterations.  Without a time limit nothing here looks at the clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tightmap.moves.context import Context
from tightmap.solvers.admm.engine import Step
from tightmap.solvers.admm.schedule import Cycle

BURST = 0.05  # seconds of iterations after which a step ends
SAME_RHO = 10  # iterations between two changes of rho: a change invalidates everything that is cached
LARGE = 200_000  # labels in all: beyond, so many iterations may take long
HURRY = 0.3  # rho grows so fast that a cycle takes at most this part of the time that is left
FREEZING = 0.6  # the rho, in the units of Cycle.rho0, at which labels no longer change
FASTEST = 1.1  # largest factor by which rho grows in an iteration, however short the time is


@dataclass
class Annealing:
    """A cycle while it runs: its penalty, and how far it has come."""

    cycle: Cycle
    rho: float
    allowance: float  # seconds that the cycle may take
    hurried: bool  # rho may grow faster than the cycle says
    pace: float  # seconds of the last iteration
    iteration: int = 0
    made: int = 0  # iterations since the last look at rho
    over: bool = False
    fresh: bool = True  # rho was changed since the last iteration
    best: float = float("inf")  # smallest residual since the last change of rho, for the paper's rule
    since: int = 0  # iteration at which that residual was reached

    @property
    def step(self) -> Step:
        return Step(self.rho, self.cycle.relax, self.fresh)

    @property
    def at_limit(self) -> bool:
        return self.iteration >= self.cycle.limit

    def iterations(self, context: Context, size: int, left: float) -> int:
        """How many iterations to make at the present rho; ``left`` are the iterations left to the run."""
        count = 1 if self.cycle.stall else self._same_rho(context, size)
        return int(max(1, min(count, self.cycle.limit - self.iteration, left)))

    def _same_rho(self, context: Context, size: int) -> int:
        """Fewer where an iteration takes long, so that time limits are kept."""
        if context.deadline is None or size <= LARGE:
            return SAME_RHO
        if self.pace == 0.0:
            return 1
        return int(np.clip(BURST / self.pace, 1, SAME_RHO))

    def advance(self, count: int, seconds: float) -> None:
        """Some iterations were made."""
        self.made = count
        self.iteration += count
        self.pace = seconds / count

    def grow(self, residual: float) -> None:
        """The penalty for the next iterations."""
        if self.cycle.stall == 0:
            self.rho *= self._growth() ** self.made
            self.fresh = True
            return
        self.fresh = False
        if residual < self.best:
            self.best, self.since = residual, self.iteration
        if self.iteration >= self.cycle.stall and self.iteration - self.since >= self.cycle.stall:
            self.rho *= self.cycle.growth
            self.best, self.since, self.fresh = residual, self.iteration, True

    def _growth(self) -> float:
        """Of rho, per iteration: the cycle's own, or more where it would not end within its part of the time."""
        cycle = self.cycle
        if not self.hurried or not np.isfinite(self.allowance):
            return cycle.growth
        needed = self.pace * math.log(FREEZING / cycle.rho0) / max(self.allowance, 1e-9)
        return max(cycle.growth, math.exp(min(needed, math.log(FASTEST))))
