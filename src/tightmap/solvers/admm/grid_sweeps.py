"""Iterations of ADMM on a grid: which tiles are computed, in which order, by which thread.

Caching.  A tile is skipped while nothing that it reads has changed, bit for bit.  A node whose vector would change by
less than ``eps`` (squared) keeps it: with that rule in the definition of the sweep, cached and uncached sweeps are
identical, and frozen regions cost nothing.  A new rho makes every tile dirty.

Order.  Phase 2 of row r runs as soon as phase 1 of row r + 1 is done, which changes no value and keeps the rows in
cache; strips of rows go to threads, and the rows along a strip's edge are finished after a barrier.  Residuals are
summed per row, in order: the result does not depend on the number of threads.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import EVER, end_of, late
from tightmap.runtime.simd import LANES, choose_less, lane_sum, less_mask, splat
from tightmap.runtime.sync import meet, together
from tightmap.solvers.admm.few_labels import few_phase1, few_phase2
from tightmap.solvers.admm.grid_kernels import FUSE, accept1, accept2, phase1, phase2
from tightmap.solvers.admm.grid_layout import GridPlan, GridState


@lean
def grid_touch(state):
    """Forget what is cached (after a change of rho or of the unaries)."""
    state.dirty1[:] = 1
    state.dirty2[:] = 1


@compiled(forceinline=True)
def _mark(flags, row, tile, moved):
    """The tiles that read the columns whose bits are set in ``moved`` are dirty.  row and tile count borders."""
    for r in range(row - 1, row + 2):
        flags[r, tile] = 1
        if moved & 1:
            flags[r, tile - 1] = 1
        if moved >> (LANES - 1):
            flags[r, tile + 1] = 1


@compiled(fastmath=FUSE)
def _row(plan, state, second, row, rho, inverse, relax, eps, g, p):
    """One phase on the dirty tiles of a row (counted with the border); returns how many there were."""
    size = plan.labels * LANES
    flags = state.dirty2[row] if second else state.dirty1[row]
    base = (1 + row * plan.tiles) * size
    wbase = row * plan.tiles * LANES
    limit = splat(eps)
    total = limit - limit
    work = 0
    for tile in range(1, plan.tiles + 1):
        if flags[tile] != 0:
            flags[tile] = 0
            work += 1
            if second:
                if plan.few:
                    change, moved = few_phase2(plan, state, base, wbase, rho, inverse, relax, limit)
                else:
                    change = phase2(plan, state, base, wbase, inverse, relax, g, p)
                    moved = less_mask(limit, change)
                    if moved != 0:
                        accept2(plan, state, base, rho, relax, limit, change, p)
                if moved != 0:
                    _mark(state.dirty1, row, tile, moved)
                    flags[tile] = 1  # its own multipliers changed
            else:
                if plan.few:
                    change, moved = few_phase1(plan, state, base, wbase, inverse, limit)
                else:
                    change = phase1(plan, state, base, wbase, inverse, g, p)
                    moved = less_mask(limit, change)
                    if moved != 0:
                        accept1(plan, state, base, limit, change, p)
                if moved != 0:
                    _mark(state.dirty2, row, tile, moved)
            total = total + choose_less(limit, change, change, limit - limit)
        base += LANES if plan.few else size
        wbase += LANES
    state.residual[1 if second else 0, row - 1] = lane_sum(total)
    return work


@compiled
def _strip(plan, state, rho, relax, eps, lo, hi, edges, until):
    """Rows lo..hi of one iteration: both phases except phase 2 along the edges, or (after a barrier) those edges.

    When time is up, the rows that are left stay as they are.
    """
    inverse = plan.one / rho
    g = np.zeros((plan.labels + 2 * len(plan.taps)) * LANES, plan.unary.dtype)
    p = np.empty((plan.labels + 4) * LANES, plan.unary.dtype)
    work = 0
    if edges:
        _row(plan, state, True, lo + 1, rho, inverse, relax, eps, g, p)
        if hi - lo > 1:
            _row(plan, state, True, hi, rho, inverse, relax, eps, g, p)
    else:
        for row in range(lo + 1, hi + 1):
            if late(until):
                break
            work += _row(plan, state, False, row, rho, inverse, relax, eps, g, p)
            if row > lo + 2:
                _row(plan, state, True, row - 1, rho, inverse, relax, eps, g, p)
    return work


@lean
def _total(state):
    total = 0.0
    for phase in range(2):
        for row in range(state.residual.shape[1]):
            total += state.residual[phase, row]
    return total


@compiled
def _sweeps(plan, state, rho, relax, eps, iterations, strips, cached, left, work, total, thread, threads, progress):
    """One thread's share; all meet between strips and their edges, after these, and when the first has added up."""
    count = len(strips) - 1
    first, last = count * thread // threads, count * (thread + 1) // threads
    met = 0
    until = end_of(left)
    for _ in range(iterations):
        if not cached:
            met += 1
            if thread == 0:
                grid_touch(state)
            if not meet(progress, thread, threads, met):
                return
        for edges in (False, True):
            for b in range(first, last):
                work[b] += _strip(plan, state, rho, relax, eps, strips[b], strips[b + 1], edges, until)
            met += 1
            if not meet(progress, thread, threads, met):
                return
        if thread == 0:
            total[0] = _total(state)
        met += 1
        if not meet(progress, thread, threads, met) or total[0] == 0.0:
            return


def grid_sweeps(
    plan: GridPlan,
    state: GridState,
    rho: np.floating,
    relax: np.floating,
    eps: np.floating,
    iterations: int,
    strips: npt.NDArray[np.int64],
    cached: bool,
    team: int,
    left: float = EVER,
) -> tuple[float, int]:
    """Iterations at one rho.  Returns (squared residual of the last one, tiles computed in phase 1).

    After ``left`` seconds they end where they are.
    """
    work, total = np.zeros(len(strips) - 1, np.int64), np.zeros(1)
    together(team, _sweeps, team, plan, state, rho, relax, eps, iterations, strips, cached, left, work, total)
    return float(total[0]), int(work.sum())
