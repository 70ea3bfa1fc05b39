"""Bundle methods on a dual decomposition: the bound of the linear relaxation itself, where message passing stalls.

    maximise over shares u   D(u) = constant + sum_T min_x [sum_{i in T} u_i^T(x_i) + sum_{f in T} theta_f(x_f)],
                             sum_T u_i^T = theta_i,

a lower bound of the energy for all shares (``subproblems.py``).  Every minimiser of a subproblem is a plane above its
minimum; with a centre u^ and a step length c a round goes to

    u = argmax  sum_T min over the planes of T [v + <u_T, e>] - 1/(2 c) ||u - u^||^2,

minimises all subproblems there, which gives D(u) and new planes, and makes u the centre if D rose by a tenth of what
the planes promised (a serious step; otherwise a null step, with better planes).  c follows Kiwiel's rule: longer while
the planes are right, shorter when they promise too much.  The method has converged when the planes promise nothing.

variant = "bcfw"      every subproblem has planes and weights of its own; the quadratic programme is solved block by
                      block, several passes over stored planes for one over the subproblems (block-coordinate
                      Frank-Wolfe: Swoboda and Kolmogorov 2019; ``planes.py``)
variant = "proximal"  one plane for all subproblems together in each round (the classical bundle; ``proximal.py``)

Labellings come from the subproblems and from the averages of the planes, which are near a solution of the linear
relaxation, both polished by coordinate descent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from tightmap.errors import OptionError
from tightmap.graph.graph import FloatArray
from tightmap.runtime import parallel
from tightmap.runtime.pace import check_time
from tightmap.solvers.base import Progress
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.decomposition.planes import add_planes, add_up, improve, make_planes, step_from
from tightmap.solvers.decomposition.proximal import Cuts
from tightmap.solvers.decomposition.run import DecompositionSolver, Run, check_options, squared_length
from tightmap.solvers.decomposition.split import Solved

VARIANTS = ("bcfw", "proximal")
ROUNDS = 1000  # enough where nothing else limits the run: few planes may promise a little for ever
SERIOUS = 0.1  # part of the promised gain that makes a step a serious one
RIGHT = 0.5  # from here on c may grow
LONGER, SHORTER = 3.0, 10.0  # most that c changes at once
MOVES = 100  # of weight in one block
SETTLED = 0.02  # passes over the planes end when one gains less than this part of the first


class Model(Protocol):
    """Planes above the bound, whichever way they are kept."""

    def add(self, solved: Solved) -> None: ...

    def propose(self, centre: FloatArray, c: float) -> Iterator[None]: ...

    def move(self, centre: FloatArray, c: float, out: FloatArray) -> float: ...

    def total(self) -> FloatArray: ...


class Blocks:
    """Planes and weights of their own for every subproblem."""

    def __init__(self, run: Run, limit: int, passes: int) -> None:
        self.run, self.passes = run, passes
        sub = run.split.sub
        self.planes = make_planes(sub, len(run.graph.arrays.unary), run.split.copies, limit)
        self.gains = np.zeros(sub.number)

    def add(self, solved: Solved) -> None:
        sub = self.run.split.sub
        parallel.run(add_planes, sub.number, sub, self.planes, solved.labels, solved.factors)
        add_up(self.run.graph.arrays.offset, sub, self.planes)

    def propose(self, centre: FloatArray, c: float) -> Iterator[None]:
        """Better weights: passes over all blocks, one class of subproblems after the other."""
        sub, offset = self.run.split.sub, self.run.graph.arrays.offset
        first = 0.0
        for k in range(self.passes):
            for j in range(sub.classes):
                low, high = int(sub.class_start[j]), int(sub.class_start[j + 1])
                parallel.run(improve, high - low, low, offset, sub, self.planes, centre, c, MOVES, self.gains)
            check_time(self.run.context)
            gain = float(self.gains.sum())
            first = first if k else gain
            if gain <= SETTLED * first:
                break
            yield None

    def move(self, centre: FloatArray, c: float, out: FloatArray) -> float:
        """out = where the weights lead to; returns what the planes promise there."""
        graph = self.run.graph
        promised = step_from(graph.arrays.offset, self.run.split.sub, self.planes, centre, c, out)
        return graph.constant + float(promised)

    def total(self) -> FloatArray:
        """The weighted solutions of the subproblems, summed over the copies of every variable."""
        return self.planes.total


@dataclass(frozen=True)
class Bundle(DecompositionSolver):
    """Options of the bundle methods.

    variant        "bcfw" (planes of every subproblem, block by block) or "proximal" (planes of all of them together)
    decomposition  "lines" of grids, "forests", second-order "chains", or "auto": the first of these that fits
    sweeps         of block-coordinate ascent before the first plane; none where an earlier run's messages are given
    planes         at most so many of a subproblem (or of all together); others are merged into one
    passes         over the stored planes, at most, for one over the subproblems
    tolerance      stop when the planes promise no larger gain than this, relative to the bound
    """

    variant: str = "bcfw"
    decomposition: str = "auto"
    sweeps: int = 10
    planes: int = 50
    passes: int = 10
    tolerance: float = 1e-9

    name: ClassVar[str] = "bundle"
    summary: ClassVar[str] = "bundle method on a decomposition into trees: certified bounds of the linear relaxation"
    capabilities: ClassVar[Capabilities] = Capabilities(bounds=True)

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise OptionError(f"bundle: variant must be one of {', '.join(VARIANTS)}, got {self.variant!r}")
        check_options(self.name, self.decomposition, self.sweeps)
        if self.planes < 3 or self.passes < 1:
            raise OptionError(f"bundle: at least 3 planes and 1 pass are needed, got {self.planes} and {self.passes}")
        if not self.tolerance >= 0.0:
            raise OptionError(f"bundle: tolerance must be at least 0, got {self.tolerance}")

    def rounds(self, run: Run) -> Iterator[Progress | None]:
        solved = run.solve(run.shares)
        run.keep(run.shares, solved)
        yield Progress(run.candidate(solved), solved.bound)
        length = squared_length(run, solved.labels)
        if length < 0.5:  # all copies agree: their labelling is optimal
            yield Progress(run.split.labelling(solved.labels, 0), solved.bound, done=True)
            return
        model: Model = Blocks(run, self.planes, self.passes) if self.variant == "bcfw" else Cuts(run, self.planes)
        model.add(solved)
        c = max(run.gap_above(solved.raw), 1e-9 * abs(solved.raw)) / length
        u = np.empty_like(run.shares)
        graph = run.graph
        weights = np.repeat(1.0 / run.split.copies, graph.arrays.cards)
        for made in itertools.count(1):
            yield from model.propose(run.shares, c)
            promised = model.move(run.shares, c, u) - run.raw
            solved = run.solve(u)
            gain = solved.raw - run.raw
            model.add(solved)
            done = promised <= self.tolerance * graph.magnitude(run.raw)
            done = done or (made >= ROUNDS and not run.context.limited)
            part = gain / promised if promised > 0.0 else 0.0
            if gain > 0.0 and part >= SERIOUS:
                run.shares, u, run.raw = u, run.shares, solved.raw
                if part > RIGHT:
                    c *= min(LONGER, 0.5 / max(1.0 - part, 1e-9))
            elif part < -1.0:
                c /= min(SHORTER, 2.0 * (1.0 - part))
            labels = run.candidate(solved, lambda: weights * model.total())
            yield Progress(labels, solved.bound, info={"promised": promised, "c": c})
            if done:
                yield from run.close(solved, weights * model.total())
                return
