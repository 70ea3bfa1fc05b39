"""Subgradient ascent on a dual decomposition (Komodakis, Paragios and Tziritas 2007).

    maximise over shares u   D(u) = constant + sum_T min_x [sum_{i in T} u_i^T(x_i) + sum_{f in T} theta_f(x_f)],
                             sum_T u_i^T = theta_i,

a lower bound of the energy for all shares (``subproblems.py``).  With x^T a minimiser of subproblem T, D has the
subgradient g and the shares move along it,

    g_i^T = e_{x_i^T} - mean over the copies of e_{x_i},     u <- u + step g.

steps = "polyak"        c (best energy - D(u)) / ||g||^2, with c halved whenever 20 rounds bring no better bound;
steps = "diminishing"   s / (1 + sqrt(k)) in round k, with s the first of Polyak's steps.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tightmap.errors import OptionError
from tightmap.runtime.compiled import compiled
from tightmap.solvers.base import Progress
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.decomposition.run import DecompositionSolver, Run, check_options, squared_length

ROUNDS = 1000  # enough where nothing else limits the run: diminishing steps never end
PATIENCE = 20  # rounds without a better bound after which Polyak's step is halved
SMALLEST = 1e-6  # of Polyak's step: the bound is as good as this method makes it

STEPS = ("polyak", "diminishing")


@compiled
def _move(sub, u, x, step):
    """u += step g."""
    at, copy_start, copy = sub.at, sub.copy_start, sub.copy
    for i in range(len(copy_start) - 1):
        first, last = copy_start[i], copy_start[i + 1]
        part = step / (last - first)
        for o in range(first, last):
            q = copy[o]
            u[at[q] + x[q]] += step
            for other in range(first, last):
                u[at[copy[other]] + x[q]] -= part


@dataclass(frozen=True)
class Subgradient(DecompositionSolver):
    """Options of the subgradient method.

    steps          "polyak" (from the gap to the best energy) or "diminishing"
    decomposition  "lines" of grids, "forests", second-order "chains", or "auto": the first of these that fits
    sweeps         of block-coordinate ascent before the first step; none where an earlier run's messages are given
    """

    steps: str = "polyak"
    decomposition: str = "auto"
    sweeps: int = 0

    name: ClassVar[str] = "subgradient"
    summary: ClassVar[str] = "subgradient ascent on a decomposition into trees, with certified bounds"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True)

    def __post_init__(self) -> None:
        if self.steps not in STEPS:
            raise OptionError(f"subgradient: steps must be one of {', '.join(STEPS)}, got {self.steps!r}")
        check_options(self.name, self.decomposition, self.sweeps)

    def rounds(self, run: Run) -> Iterator[Progress | None]:
        u = run.shares.copy()
        factor, idle, k = 1.0, 0, 0
        first: float | None = None
        while True:
            solved = run.solve(u)
            idle = 0 if run.keep(u, solved) else idle + 1
            labels = run.candidate(solved)
            length = squared_length(run, solved.labels)
            if length < 0.5:  # all copies agree: their labelling is optimal
                yield Progress(run.split.labelling(solved.labels, 0), solved.bound, done=True)
                return
            if idle >= PATIENCE:
                factor, idle = 0.5 * factor, 0
            step = run.gap_above(solved.raw) / length
            first = step if first is None else first
            step = factor * step if self.steps == "polyak" else first / (1.0 + k**0.5)
            yield Progress(labels, solved.bound, info={"step": step})
            if factor < SMALLEST or (k >= ROUNDS and not run.context.limited):
                yield from run.close(solved, None)
                return
            _move(run.split.sub, u, solved.labels, step)
            k += 1
