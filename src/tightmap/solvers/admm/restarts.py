"""Which cycle comes next, and at which rho it begins.

The cycles of schedule.py come in their order, changed by the options and by what earlier cycles have found:

* a model that is no regular grid begins with a pilot, a short cycle from a very small rho; where it froze is the unit
  of rho0 in the cycles that follow, and they refine it;
* hard costs are searched with stand-ins of several sizes; once some were tried, every second cycle uses the one whose
  results were the best on average;
* beyond the preset's own cycles, a run goes on only while somebody else ends it and the energy still falls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tightmap.moves.context import Vector
from tightmap.solvers.admm.schedule import PILOT, Cycle, cycles

PATIENCE = 60  # cycles in a row without a lower energy after which a run ends before its time limit
TRIED = 3  # once so many ways of treating hard costs were tried, every second cycle uses the best of them

Treatment = tuple[float, bool]  # of hard costs: Cycle.hard and Cycle.ban


@dataclass(frozen=True)
class Rules:
    """What the options of ADMM say about its cycles."""

    preset: str
    rho0: float | None
    growth: float | None
    relax: float | None
    restarts: int | None

    def apply(self, cycle: Cycle) -> Cycle:
        return replace(
            cycle,
            rho0=cycle.rho0 if self.rho0 is None else self.rho0,
            growth=cycle.growth if self.growth is None else self.growth,
            relax=cycle.relax if self.relax is None else self.relax,
        )


@dataclass(frozen=True)
class Terrain:
    """What the choice of cycles needs to know about the model."""

    grid: bool  # the kernels of regular grids apply
    levels: tuple[int, ...]  # factors by which it can be made coarser
    small: bool  # a slow cycle costs little
    unary: Vector  # flat; the paper counts rho in the largest cost


@dataclass
class Programme:
    """The cycles of a run."""

    rules: Rules
    terrain: Terrain
    seed: int
    number: int = 0  # how many cycles have begun
    epoch: int = 0  # how often the search has started afresh
    waiting: Cycle | None = None  # while a pilot runs: the cycle that it is for
    frozen: dict[Treatment, float] = field(default_factory=dict)  # smallest rho at the end of a cycle
    found: dict[Treatment, list[float]] = field(default_factory=dict)  # energies

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        t = self.terrain
        self._cycles = cycles(self.rules.preset, t.grid, t.levels, self.seed + 1000 * self.epoch, t.small)

    def start_afresh(self) -> None:
        self.epoch += 1
        self._begin()

    def next(self, limited: bool, improved: int) -> Cycle | None:
        """The next cycle, or None when the programme is over.

        ``limited`` says that the run has a limit of time or iterations, ``improved`` is the number of the last cycle
        that lowered the energy.
        """
        if self.waiting is not None:  # a pilot has just been run for it
            cycle, planned = self.waiting, True
            self.waiting = None
        else:
            cycle, planned = next(self._cycles)
            planned = planned and self.epoch == 0
        if self.rules.restarts is not None:
            if self.number >= self.rules.restarts:
                return None
        elif not planned and (not limited or self.number - improved > max(PATIENCE, improved)):
            return None
        if len(self.found) >= TRIED and self.number % 2 and cycle.stall == 0:
            hard, ban = min(self.found, key=lambda way: float(np.mean(self.found[way])))
            cycle = replace(cycle, hard=hard, ban=ban)
        self.number += 1
        return self.rules.apply(cycle)

    def first_rho(self, cycle: Cycle, treatment: Treatment, kappa: float) -> tuple[Cycle, float]:
        """The rho at which a cycle begins; the cycle may have to wait for a pilot, which is then returned instead."""
        unit = kappa
        if not self.terrain.grid and cycle.stall == 0 and self.rules.rho0 is None:
            if treatment in self.frozen:
                unit = 2.0 * self.frozen[treatment]
            else:
                self.waiting, cycle = cycle, replace(PILOT, hard=cycle.hard, ban=cycle.ban)
        if self.rules.preset == "paper" and self.number == 1 and self.rules.rho0 is None:
            return cycle, 0.001 * max(kappa, float(np.abs(self.terrain.unary).max(initial=0.0)))
        return cycle, cycle.rho0 * unit

    def froze(self, treatment: Treatment, rho: float) -> None:
        """A cycle from the uniform point ended there."""
        self.frozen[treatment] = min(rho, self.frozen.get(treatment, np.inf))

    def ended(self, treatment: Treatment, value: float) -> None:
        """The iterates at the end of a cycle were rounded to that energy."""
        self.found.setdefault(treatment, []).append(value)
