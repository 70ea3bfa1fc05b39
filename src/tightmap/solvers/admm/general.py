"""ADMM on any model: factors of every kind and order, all three decompositions, exact caching, several threads.

The updates are those of updates.py.  An iteration goes through the copies d = 1, .., D in turn, through all variables
for each, and through the multipliers at the end.  Within a copy variables do not read one another, so they are dealt to
threads in fixed blocks; residuals are summed per block, in order: the result does not depend on the number of threads.

Caching, as on grids.  A vector that would move by at most ``eps`` (squared) stays as it is, and a variable is skipped
while nothing that it reads has changed; the two together give bit for bit what recomputing everything gives.  A new rho
makes every variable dirty.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import incident_ranges, most_labels, workspace
from tightmap.graph.graph import Arrays
from tightmap.moves.context import Labels, Vector
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import EVER, LOOK, end_of, late
from tightmap.runtime.parallel import Teams
from tightmap.runtime.sync import meet, together
from tightmap.solvers.admm.engine import Heated, Iterates, Noise, Splitting, Start, Step, worthwhile_threads
from tightmap.solvers.admm.ranges import capped
from tightmap.solvers.admm.updates import (
    Form,
    add_unary,
    centre,
    copy_beside,
    linear_term,
    move_copy,
    move_multipliers,
    project,
    squared_change,
    squared_disagreement,
)

BLOCK = 64  # variables that a thread takes at a time


class GeneralState(NamedTuple):
    """Iterates of one run.  Copy d of variable i is x[d * N + offset[i] : ...], N the total number of labels."""

    x: npt.NDArray[np.float64]  # (D * N,)
    y: npt.NDArray[np.float64]  # (D * N,) multipliers; cyclic and star do not use those of the first copy
    dirty: npt.NDArray[np.uint8]  # (D + 1, n), the last row for the multipliers
    residual: npt.NDArray[np.float64]  # (D + 1, blocks)


def general_state(g: Arrays, form: Form) -> GeneralState:
    n, size = len(g.cards), len(g.unary)
    d = form.copies
    blocks = -(-n // BLOCK)
    return GeneralState(
        np.zeros(d * size), np.zeros(d * size), np.ones((d + 1, n), np.uint8), np.zeros((d + 1, max(blocks, 1)))
    )


@lean
def _mark(g, form, dirty, d, i):
    """Everything that reads copy d of variable i: the factors around it, and the variable's other copies."""
    for e in range(form.copies + 1):
        dirty[e, i] = 1
    for a in range(g.adj_start[i], g.adj_start[i + 1]):
        f = int(g.adj_factor[a])
        pos = int(g.adj_pos[a])
        if not form.symmetrize and pos != d:
            continue
        first = g.scope_start[f]
        for q in range(g.scope_start[f + 1] - first):
            if q != pos:
                dirty[copy_beside(form, d, pos, q), g.scope[first + q]] = 1


@compiled
def _update_block(g, form, state, d, b, rho, eps, scratch, until):
    """Copy d of the dirty variables of a block; returns how many there were (fewer when time is up)."""
    x, y, dirty = state.x, state.y, state.dirty
    n = len(g.cards)
    size = g.offset[n]
    work = np.empty(scratch)
    start = np.empty(128, np.int64)
    p = np.empty(most_labels(g.cards))
    total = 0.0
    count = 0
    spent = 0.0
    for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
        if dirty[d, i] == 0:
            continue
        spent += 100.0
        if spent > LOOK:
            spent = 0.0
            if late(until):
                break
        c, at = g.cards[i], g.offset[i]
        if not linear_term(g, form, x, d, i, p, start, work, until):
            break
        dirty[d, i] = 0
        count += 1
        add_unary(g, form, d, i, p)
        centre(form, x, y, d, at, size, rho, c, p)
        project(form, d, c, p)
        change = squared_change(x, d, at, size, c, p)
        if change > eps:
            total += change
            move_copy(form, x, y, d, at, size, rho, c, p)
            _mark(g, form, dirty, d, i)
    state.residual[d, b] = total
    return count


@lean
def _multiply_block(g, form, state, b, rho, eps):
    """The multipliers of the dirty variables of a block."""
    x, y, dirty = state.x, state.y, state.dirty
    n, last = len(g.cards), form.copies
    size = g.offset[n]
    total = 0.0
    for i in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
        if dirty[last, i] == 0:
            continue
        dirty[last, i] = 0
        c, at = g.cards[i], g.offset[i]
        gap = squared_disagreement(form, x, at, size, c)
        if gap > eps:
            total += gap
            move_multipliers(form, x, y, at, size, rho, c)
            for e in range(last + 1):
                dirty[e, i] = 1
    state.residual[last, b] = total


@lean
def _touch(state):
    state.dirty[:] = 1


@lean
def _residual(state):
    total = 0.0
    for d in range(state.residual.shape[0]):
        for b in range(state.residual.shape[1]):
            total += state.residual[d, b]
    return total


@compiled
def _sweeps(g, form, state, rho, eps, iterations, cached, scratch, left, work, total, thread, threads, progress):
    """One thread's share; all meet after every copy, after the multipliers, and when the first has added up.

    total gets the squared residual, and whether the time is up, on which all threads have to agree.
    """
    blocks = state.residual.shape[1]
    first, last = blocks * thread // threads, blocks * (thread + 1) // threads
    met = 0
    until = end_of(left)
    for _ in range(iterations):
        if not cached:
            met += 1
            if thread == 0:
                _touch(state)
            if not meet(progress, thread, threads, met):
                return
        for d in range(form.copies):
            for b in range(first, last):
                work[b] += _update_block(g, form, state, d, b, rho, eps, scratch, until)
            met += 1
            if not meet(progress, thread, threads, met):
                return
        for b in range(first, last):
            _multiply_block(g, form, state, b, rho, eps)
        met += 1
        if not meet(progress, thread, threads, met):
            return
        if thread == 0:
            total[0] = _residual(state)
            total[1] = 1.0 if late(until) else 0.0
        met += 1
        if not meet(progress, thread, threads, met) or total[0] == 0.0 or total[1] == 1.0:
            return


def general_sweeps(
    g: Arrays,
    form: Form,
    state: GeneralState,
    rho: float,
    eps: float,
    iterations: int,
    cached: bool,
    scratch: int,
    left: float = EVER,
    team: int = 1,
) -> tuple[float, int]:
    """Iterations at one rho, until time is up.  Returns (squared residual of the last one, vectors computed)."""
    work, total = np.zeros(state.residual.shape[1], np.int64), np.zeros(2)
    together(team, _sweeps, team, g, form, state, rho, eps, iterations, cached, scratch, left, work, total)
    return float(total[0]), int(work.sum())


class GeneralSplitting(Splitting):
    """Copies and multipliers of any model, in double precision."""

    def __init__(self, g: Arrays, form: Form, eps: float, threads: int, cached: bool) -> None:
        self.form, self.eps, self.cached = form, eps, cached
        sizes = np.add.reduceat(g.cards[g.scope], g.scope_start[:-1]) if len(g.kind) else np.zeros(1)
        entries = float(sizes.sum()) * float(g.cards.mean())
        self.effort = entries * form.copies
        self.teams = Teams(worthwhile_threads(entries, threads))
        ranges = incident_ranges(g)
        self.variables = len(g.cards)
        self.kappa = float(ranges.mean()) / form.copies
        self.arrays = g._replace(unary=capped(g, ranges))
        self.noisy = self.arrays
        self.scratch = workspace(g)
        self.state = general_state(g, form)

    def reset(self, start: Start, noise: Noise | None = None) -> None:
        g = self.arrays
        self.noisy = g if noise is None else g._replace(unary=g.unary + noise.draw(len(g.unary)))
        x = np.repeat(1.0 / g.cards, g.cards) if start is None else start
        if isinstance(start, Heated):
            x = start.vectors(slice(None), g.cards)
        self._copies(self.state.x)[:] = x
        self.state.y[:] = 0.0
        self.state.dirty[:] = 1

    def iterate(self, count: int, how: Step, left: float = EVER) -> tuple[float, float]:
        if how.fresh:
            self.state.dirty[:] = 1
        form = self.form._replace(relax=how.relax)
        team = self.teams.choose(self.variables)
        begin = time.perf_counter()
        residual, work = general_sweeps(
            self.noisy, form, self.state, how.rho, self.eps, count, self.cached, self.scratch, left, team
        )
        self.teams.report(self.variables, team, (time.perf_counter() - begin) / max(1, work))
        return residual / self.variables, work / max(1, count * self.variables * form.copies)

    def _copies(self, flat: Vector) -> Vector:
        return flat.reshape(self.form.copies, -1)

    def relaxed(self) -> Vector:
        return self._copies(self.state.x)[0].copy()

    def labels(self) -> Labels:
        g = self.arrays
        x = self.relaxed()
        if (g.cards == g.cards[0]).all():
            return x.reshape(-1, int(g.cards[0])).argmax(axis=1)
        top = np.repeat(np.maximum.reduceat(x, g.offset[:-1]), g.cards)
        first = np.flatnonzero(x == top)
        owner = np.repeat(np.arange(self.variables), g.cards)[first]
        start = np.searchsorted(owner, np.arange(self.variables))
        return first[start] - g.offset[:-1]

    def export(self) -> Iterates:
        return Iterates(self._copies(self.state.x).copy(), self._copies(self.state.y).copy())

    def load(self, content: Iterates) -> None:
        self.reset(None)
        self._copies(self.state.x)[:] = content.copies
        self._copies(self.state.y)[:] = content.multipliers

    def close(self) -> None:
        del self.state, self.arrays, self.noisy

    def searched(self, g: Arrays) -> Arrays:
        return self.noisy
