"""What ADMM runs, in which order: cycles, each one annealing of rho from a start to freezing.

Within a cycle rho grows slowly; below about .1 kappa the copies disagree and explore, between .2 and .6 kappa labels
freeze.  What is found depends on the path, so many short cycles whose results are fused go lower than one long one:

* coarse grids first, at factors 4, 3 and 2 with different offsets (coarse.py), then the model itself;
* over-relaxation 1 and above in turn: one favours ring-like models, the other frustrated ones;
* tiny noise on the unaries against ties, from the seed and the number of the cycle;
* afterwards slower growth, restarts at the uniform point and reheats of the fused labelling, as long as there is time.

One rule for rho0, in units of kappa, holds for the grids that were measured (benchmarks/admm.py).  Tables of other
models may have wide ranges that no good labelling comes near, so there a short pilot from a very small rho finds
where the iterates freeze, later cycles refine it, and that is the unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Cycle:
    """One annealing run."""

    rho0: float = 0.03  # in units of kappa, or of twice the rho at which earlier cycles froze
    growth: float = 1.003  # of rho, per iteration
    relax: float = 1.0  # over-relaxation of the consensus, 1 for none
    factor: int = 1  # 1: the model itself; otherwise a coarse grid of squares of factor x factor pixels
    offset: tuple[int, int] = (0, 0)  # by how many rows and columns the first squares are cut
    heat: float = 1.0  # start at heat * uniform + (1 - heat) * fused labelling
    noise: float = 1e-4  # standard deviation on the unaries, in units of kappa
    hard: float = 1.0  # cost of a forbidden labelling, in units of the largest soft range
    ban: bool = False  # with hard costs: leave out labels of extreme unaries ("no match"), behind which conflicts hide
    limit: int = 8000  # most iterations
    stall: int = 0  # > 0: rho *= growth only when the residual has not improved for this many iterations


PILOT = Cycle(rho0=0.0005, growth=1.01, limit=2000)
FIRST: tuple[Cycle, ...] = (
    Cycle(factor=4),
    Cycle(factor=4, offset=(2, 2), relax=1.6),
    Cycle(factor=3, relax=1.6),
    Cycle(factor=3, offset=(1, 1)),
    Cycle(factor=2, relax=1.6),
    Cycle(factor=2, offset=(1, 1)),
    Cycle(factor=2, offset=(0, 1), relax=1.6),
    Cycle(factor=2, offset=(1, 0), growth=1.002),
    Cycle(),
    Cycle(relax=1.6),
)
LATER: tuple[Cycle, ...] = (
    Cycle(rho0=0.1, growth=1.0005),
    Cycle(rho0=0.1, growth=1.0005, relax=1.9),
    Cycle(rho0=0.12, growth=1.0005, heat=0.5),
    Cycle(factor=2, growth=1.001),
    Cycle(rho0=0.12, growth=1.0005, heat=0.5, relax=1.9),
    Cycle(factor=3, growth=1.001, relax=1.6),
    Cycle(growth=1.001),
    Cycle(factor=2, growth=1.001, relax=1.9),
)
SMALL_LATER: tuple[Cycle, ...] = (  # where a slow cycle on the grid itself costs no more than a second
    Cycle(rho0=0.1, growth=1.0005),
    Cycle(rho0=0.1, growth=1.0005, relax=1.9),
    Cycle(rho0=0.12, growth=1.0005, heat=0.5, relax=1.9),
    Cycle(rho0=0.1, growth=1.001, relax=1.9),
    Cycle(rho0=0.12, growth=1.0005, heat=0.5),
    Cycle(rho0=0.12, growth=1.001, heat=0.5, relax=1.9, noise=1e-3),
)
GENERAL: tuple[Cycle, ...] = (
    Cycle(growth=1.002),
    Cycle(growth=1.002),
    Cycle(growth=1.002, relax=1.6),
    Cycle(growth=1.0005),
    Cycle(growth=1.0005),
    Cycle(growth=1.001, relax=1.9),
)
GENERAL_LATER: tuple[Cycle, ...] = (
    Cycle(growth=1.0005),
    Cycle(rho0=0.06, growth=1.001, heat=0.5),
    Cycle(growth=1.0005, relax=1.6),
    Cycle(growth=1.001, noise=1e-3),
    Cycle(rho0=0.015, growth=1.0005),
    Cycle(rho0=0.06, growth=1.001, heat=0.5, relax=1.9),
    Cycle(growth=1.0005, relax=1.9, noise=1e-3),
)
# values of Cycle.hard, in turn: a cost that is large enough to be respected may be so large that nothing moves any more
HARD = (0.25, 0.1, 1.0, 0.25, 4.0)
PRESETS = ("default", "fast", "quality", "paper")


def cycles(
    preset: str, grid: bool, levels: tuple[int, ...], seed: int, small: bool = False
) -> Iterator[tuple[Cycle, bool]]:
    """Endless cycles, each with whether the preset's own programme includes it (the rest is for spare time).

    grid says that the sweeps of regular grids apply, small that they are cheap; levels are the coarsening factors that
    the model allows.
    """
    planned = preset != "paper"
    if not planned:
        yield Cycle(growth=1.2, noise=0.0, limit=20000, stall=500), True
        preset = "default"
    first = FIRST if grid else GENERAL
    if not grid:
        first = {"fast": GENERAL[:2], "default": GENERAL, "quality": GENERAL[1:] * 2}[preset]
    elif preset == "fast":
        first = (FIRST[0], FIRST[2], FIRST[4], replace(FIRST[8], growth=1.01), replace(FIRST[9], growth=1.01))
    elif preset == "quality":
        first = tuple(replace(c, growth=1.0 + (c.growth - 1.0) / 3) for c in FIRST)
    count = 0
    for cycle in first:
        if cycle.factor == 1 or cycle.factor in levels:
            yield replace(cycle, hard=HARD[count % len(HARD)], ban=count % 3 < 2), planned
            count += 1
    rng = np.random.default_rng([seed, 1])
    turn = 0
    while True:
        for cycle in (SMALL_LATER if small else LATER) if grid else GENERAL_LATER:
            factor = cycle.factor
            if factor > 1 and factor not in levels:
                continue
            offset = (int(rng.integers(factor)), int(rng.integers(factor)))
            growth = 1.0 + (cycle.growth - 1.0) / (1 + turn // 4)
            hard = HARD[count % len(HARD)]
            rho0 = cycle.rho0 * float(rng.uniform(0.75, 1.3))  # the same start would lead to the same end
            cycle = replace(cycle, rho0=rho0, offset=offset, growth=growth, hard=hard, ban=count % 3 < 2)
            yield cycle, planned and turn == 0 and preset != "fast"
            count += 1
        turn += 1
