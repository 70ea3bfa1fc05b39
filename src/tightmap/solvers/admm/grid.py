"""ADMM sweeps on regular grids: implicit neighbours, columns as vector lanes, exact caching, row-parallel.

The symmetrised two-copy ADMM of a pairwise model (solver.py with D = 2, paper eq. 36 and 38) does, per iteration,

    phase 1   x1_i = simplex( x2_i - (y_i + u_i + p_i(x2)) / rho )
    phase 2   xh = a x1_i + (1 - a) x2_i,   x2_i' = max(0, xh + (y_i - p_i(x1)) / rho),   y_i += rho (xh - x2_i')

with p_i(x) = 1/2 sum_j w_ij V x_j.  On a grid with one shared table V(s, t) = min(g(|s - t|), T) the neighbours are
summed first and V is applied once, as a short filter: V z = T sum(z) - sum_k (T - g(|k|)) z(. + k).

Layout.  Eight columns of a row are a tile, and a tile is contiguous: [row][tile][label][lane].  Every operation works
on eight pixels at once whatever the number of labels is, also the projection on the simplex (Newton's method on its
dual, started from the support of the last iterate).  Rows have a zero border, edges that do not exist have weight
zero, columns beyond the width are nodes without costs that never move.

Caching.  A tile is skipped while nothing that it reads has changed, bit for bit.  A node whose vector would change by
less than ``eps`` (squared) keeps it: with that rule in the definition of the sweep, cached and uncached sweeps are
identical, and frozen regions cost nothing.  A new rho makes every tile dirty.

Parallel.  Phase 2 of row r runs as soon as phase 1 of row r + 1 is done, which changes no value and keeps the rows in
cache; strips of rows go to threads, and the rows along a strip's edge are finished after a barrier.  Residuals are
summed per row, in order: the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.stencil import Stencil
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.simd import (
    LANES,
    choose_less,
    get,
    lane_sum,
    less_mask,
    load,
    maximum,
    shift_down,
    shift_up,
    splat,
    store,
)
from tightmap.runtime.sync import meet, together
from tightmap.solvers.admm.few_labels import FEW, few_phase1, few_phase2

_FUSE = {"contract", "nsz"}
_DIRECTIONS = [(0, 1), (1, 0), (1, 1), (1, -1)]  # edges are kept at their first end: right, down, and the diagonals


class GridPlan(NamedTuple):
    """Everything about the model that a sweep reads.  Flat arrays of one float type."""

    height: int
    width: int
    tiles: int  # per row: the width divided by LANES, rounded up
    labels: int
    few: bool  # the kernels and the layout of few_labels.py
    diagonal: bool  # the eight neighbours of a pixel, not only four
    weight: npt.NDArray[np.floating]  # (2 or 4, height + 2, width) half weights in the order of _DIRECTIONS
    unary: npt.NDArray[np.floating]  # (height + 2, tiles, labels, LANES) between two margins; labels, tiles when few
    one: np.floating  # 1, 2 and 1 / labels in the float type of the run (mixing in integers would widen to float64)
    two: np.floating
    share: np.floating
    huge: np.floating  # larger than every entry
    top: np.floating  # T, the largest cost of the table
    taps: npt.NDArray[np.floating]  # (K,) T - g(0), T - g(1), ... > 0


class GridState(NamedTuple):
    """Iterates and activity flags of one run (vectors in the layout of ``GridPlan.unary``)."""

    x1: npt.NDArray[np.floating]
    x2: npt.NDArray[np.floating]
    y: npt.NDArray[np.floating]
    dirty1: npt.NDArray[np.uint8]  # (height + 2, tiles + 2)
    dirty2: npt.NDArray[np.uint8]
    residual: npt.NDArray[np.float64]  # (2, height)


def fits(stencil: Stencil) -> bool:
    """Whether these sweeps can run: neighbours at most one pixel away, and a table that rises and levels off soon."""
    return stencil.radius == 1 and 1 <= len(_taps(stencil)) <= 8


def _taps(stencil: Stencil) -> npt.NDArray[np.float64]:
    top = stencil.profile.max()
    return top - stencil.profile[: int(np.argmax(stencil.profile >= top))]


def _room(height: int, tiles: int, labels: int, dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    """Zeros for the vectors of all pixels and the two border rows.

    Before the first and after the last tile there is one more: diagonal neighbours of the corners are read there, with
    weight zero, and must be numbers.
    """
    return np.zeros(((height + 2) * tiles + 2) * labels * LANES, dtype)


def grid_plan(stencil: Stencil, dtype: type) -> GridPlan:
    """Plan of a stencil; unaries are zero until they are written."""
    height, width, labels = stencil.height, stencil.width, stencil.labels
    tiles = -(-width // LANES)
    diagonal = bool((stencil.displacements != 0).all(axis=1).any())
    weight: npt.NDArray[np.floating] = np.zeros((4 if diagonal else 2, height + 2, tiles * LANES), dtype)
    for displacement, plane in zip(stencil.displacements.tolist(), stencil.weights, strict=True):
        weight[_DIRECTIONS.index(tuple(displacement)), 1:-1, :width] = plane / 2
    taps: npt.NDArray[np.floating] = _taps(stencil).astype(dtype)
    return GridPlan(
        height, width, tiles, labels, labels <= FEW and len(taps) == 1, diagonal, weight.ravel(),
        _room(height, tiles, labels, dtype), dtype(1), dtype(2), dtype(1 / labels), dtype(1e30),
        dtype(stencil.profile.max()), taps,
    )  # fmt: skip


def grid_ranges(plan: GridPlan, first: int, last: int) -> npt.NDArray[np.float64]:
    """Sums of the ranges of the factors around every pixel of some rows."""
    last = min(last, plan.height)
    degree = np.zeros((last - first, plan.width))
    padded = plan.tiles * LANES
    for plane, (down, right) in zip(plan.weight.reshape(-1, plan.height + 2, padded), _DIRECTIONS, strict=False):
        degree += np.abs(plane[1 + first : 1 + last, : plan.width])
        other = np.abs(plane[1 + first - down : 1 + last - down, : plan.width])  # edges whose second end is here
        degree[:, max(right, 0) : plan.width + min(right, 0)] += other[:, max(-right, 0) : plan.width + min(-right, 0)]
    return 2.0 * float(plan.top) * degree.reshape(-1)


def grid_state(plan: GridPlan) -> GridState:
    """Room for one run; fill it with ``grid_place``."""
    flags = (plan.height + 2, plan.tiles + 2)
    x1, x2, y = (_room(plan.height, plan.tiles, plan.labels, plan.unary.dtype) for _ in range(3))
    return GridState(
        x1, x2, y,
        np.zeros(flags, np.uint8), np.zeros(flags, np.uint8), np.zeros((2, plan.height)),
    )  # fmt: skip


def _columns(plan: GridPlan, flat: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """The rows of the image as [row][tile][lane][label]: a view."""
    flat = flat[plan.labels * LANES : -plan.labels * LANES]
    if plan.few:
        return flat.reshape(plan.height + 2, plan.labels, plan.tiles, LANES)[1:-1].transpose(0, 2, 3, 1)
    return flat.reshape(plan.height + 2, plan.tiles, plan.labels, LANES)[1:-1].transpose(0, 1, 3, 2)


def grid_write(plan: GridPlan, flat: npt.NDArray[np.floating], vectors: npt.NDArray[np.floating], first: int) -> None:
    """Put the vectors, shape (pixels, labels), of some rows of the image in place, zeros beyond its width."""
    rows = _columns(plan, flat)[first : first + len(vectors) // plan.width]
    padded = np.zeros((len(rows), plan.tiles * LANES, plan.labels), flat.dtype)
    padded[:, : plan.width] = vectors.reshape(len(rows), plan.width, plan.labels)
    rows[:] = padded.reshape(len(rows), plan.tiles, LANES, plan.labels)


def grid_read(
    plan: GridPlan, flat: npt.NDArray[np.floating], first: int = 0, last: int | None = None
) -> npt.NDArray[np.floating]:
    """Vectors of the rows first..last of the image, shape (pixels, labels)."""
    rows = _columns(plan, flat)[first:last]
    full = rows.reshape(len(rows), plan.tiles * LANES, plan.labels)
    return np.ascontiguousarray(full[:, : plan.width]).reshape(-1, plan.labels)


def grid_place(plan: GridPlan, flat: npt.NDArray[np.floating], x: npt.NDArray[np.floating], first: int) -> None:
    """Put rows of a copy in place; nodes outside the image are one-hot and without costs, so that they never move."""
    grid_write(plan, flat, x, first)
    extra = plan.tiles * LANES - plan.width
    if extra:
        _columns(plan, flat)[first : first + len(x) // plan.width, -1, LANES - extra :, 0] = 1


@lean
def grid_touch(state):
    """Forget what is cached (after a change of rho or of the unaries)."""
    state.dirty1[:] = 1
    state.dirty2[:] = 1


@compiled(forceinline=True, fastmath=_FUSE)
def _gather(plan, source, base, wbase, g):
    """Weighted sums of the neighbours of eight columns, to g (with a margin of empty labels); returns T * their sum."""
    size = plan.labels * LANES  # of a tile
    row = plan.tiles * size
    width = plan.tiles * LANES
    plane = (plan.height + 2) * width
    out = len(plan.taps) * LANES
    end, next_ = LANES - 1 - size, size  # last lane of the tile to the left, first lane of the tile to the right
    total = splat(plan.one - plan.one)
    w = plan.weight
    at = wbase
    right, left = load(w, at), load(w, at - 1)
    at += plane
    down, up = load(w, at), load(w, at - width)
    if not plan.diagonal:
        for s in range(base, base + size, LANES):
            v = load(source, s)
            z = right * shift_down(v, get(source, s + next_)) + left * shift_up(v, get(source, s + end))
            z = z + (down * load(source, s + row) + up * load(source, s - row))
            total = total + z
            store(g, out, z)
            out += LANES
        return total * splat(plan.top)
    at += plane
    down_right, up_left = load(w, at), load(w, at - width - 1)
    at += plane
    down_left, up_right = load(w, at), load(w, at - width + 1)
    for s in range(base, base + size, LANES):
        v = load(source, s)
        z = right * shift_down(v, get(source, s + next_)) + left * shift_up(v, get(source, s + end))
        v = load(source, s + row)
        z = z + down * v
        z = z + down_right * shift_down(v, get(source, s + row + next_))
        z = z + down_left * shift_up(v, get(source, s + row + end))
        v = load(source, s - row)
        y = up * v
        y = y + up_right * shift_down(v, get(source, s - row + next_))
        y = y + up_left * shift_up(v, get(source, s - row + end))
        z = z + y
        total = total + z
        store(g, out, z)
        out += LANES
    return total * splat(plan.top)


@compiled(_nrt=False, forceinline=True, fastmath=_FUSE)
def _filtered(plan, g, at, total):
    """(V z)(s) of eight columns, where z(s) is at g[at]."""
    v = total - splat(plan.taps[0]) * load(g, at)
    for k in range(1, len(plan.taps)):
        v = v - splat(plan.taps[k]) * (load(g, at - k * LANES) + load(g, at + k * LANES))
    return v


@compiled(_nrt=False, forceinline=True, fastmath=_FUSE)
def _newton(plan, state, base, p):
    """Thresholds of eight vectors by Newton's method, from the best of three lower bounds."""
    labels = plan.labels
    one = splat(plan.one)
    zero = one - one
    mean, mass, count = zero - one, zero - one, zero
    peak = load(p, 0)
    for s in range(0, labels * LANES, LANES):  # mean, maximum, support of the last iterate
        c = load(p, s)
        mean = mean + c
        peak = maximum(peak, c)
        old = load(state.x1, base + s)
        mass = mass + choose_less(zero, old, c, zero)
        count = count + choose_less(zero, old, one, zero)
    tau = maximum(mean * splat(plan.share), peak - one)
    tau = maximum(tau, choose_less(zero, count, mass / maximum(count, one), tau))
    if labels % 2:
        store(p, labels * LANES, zero - splat(plan.huge))
    for _ in range(labels + 1):  # Newton from below: the support only shrinks, and it is exact when tau stays
        mass, count = zero - one, zero
        mass_, count_ = zero, zero
        for s in range(0, labels, 2):  # two sums, because one would wait for itself
            c, d = load(p, s * LANES), load(p, s * LANES + LANES)
            mass, mass_ = mass + choose_less(tau, c, c, zero), mass_ + choose_less(tau, d, d, zero)
            count, count_ = count + choose_less(tau, c, one, zero), count_ + choose_less(tau, d, one, zero)
        mass, count = mass + mass_, count + count_
        old = tau
        tau = choose_less(zero, count, maximum(tau, mass / maximum(count, one)), tau)
        if less_mask(old, tau) == 0:
            break
    return tau


@compiled(_nrt=False, forceinline=True, fastmath=_FUSE)
def _phase1(plan, state, base, wbase, inverse, g, p):
    """Projected vectors of eight columns, to p; returns their squared distances from x1."""
    labels = plan.labels
    one = splat(plan.one)
    zero = one - one
    scale = splat(inverse)
    total = _gather(plan, state.x2, base, wbase, g)
    line, at = base, len(plan.taps) * LANES
    for s in range(0, labels * LANES, LANES):
        c = (load(state.y, line + s) + load(plan.unary, line + s)) + _filtered(plan, g, at + s, total)
        store(p, s, load(state.x2, line + s) - c * scale)
    tau = _newton(plan, state, base, p)
    change = zero
    line = base
    for s in range(labels):
        c = maximum(load(p, s * LANES) - tau, zero)
        d = c - load(state.x1, line)
        change = change + d * d
        store(p, s * LANES, c)
        line += LANES
    return change


@compiled(_nrt=False, forceinline=True, fastmath=_FUSE)
def _phase2(plan, state, base, wbase, inverse, relax, g, p):
    """Second copies of eight columns, to p; returns their squared changes plus squared distances from x1."""
    zero = splat(plan.one - plan.one)
    scale, mix, keep = splat(inverse), splat(relax), splat(plan.one - relax)
    total = _gather(plan, state.x1, base, wbase, g)
    change = zero
    line, at = base, len(plan.taps) * LANES
    for s in range(plan.labels):
        x, old = load(state.x1, line), load(state.x2, line)
        v = (mix * x + keep * old) + (load(state.y, line) - _filtered(plan, g, at, total)) * scale
        v = maximum(v, zero)
        d, e = v - old, x - v
        change = change + (d * d + e * e)
        store(p, s * LANES, v)
        line += LANES
        at += LANES
    return change


@compiled(_nrt=False, forceinline=True, fastmath=_FUSE)
def _accept1(plan, state, base, eps, change, p):
    """x1 takes the columns that moved by more than eps."""
    for s in range(plan.labels):
        line = base + s * LANES
        store(state.x1, line, choose_less(eps, change, load(p, s * LANES), load(state.x1, line)))


@compiled(_nrt=False, forceinline=True, fastmath=_FUSE)
def _accept2(plan, state, base, rho, relax, eps, change, p):
    """x2 and the multipliers of the columns that moved by more than eps."""
    mix, keep, step = splat(relax), splat(plan.one - relax), splat(rho)
    for s in range(plan.labels):
        line = base + s * LANES
        old, v, y = load(state.x2, line), load(p, s * LANES), load(state.y, line)
        target = mix * load(state.x1, line) + keep * old
        store(state.y, line, choose_less(eps, change, y + step * (target - v), y))
        store(state.x2, line, choose_less(eps, change, v, old))


@compiled(forceinline=True)
def _mark(flags, row, tile, moved):
    """The tiles that read the columns whose bits are set in ``moved`` are dirty.  row and tile count borders."""
    for r in range(row - 1, row + 2):
        flags[r, tile] = 1
        if moved & 1:
            flags[r, tile - 1] = 1
        if moved >> (LANES - 1):
            flags[r, tile + 1] = 1


@compiled(fastmath=_FUSE)
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
                    change = _phase2(plan, state, base, wbase, inverse, relax, g, p)
                    moved = less_mask(limit, change)
                    if moved != 0:
                        _accept2(plan, state, base, rho, relax, limit, change, p)
                if moved != 0:
                    _mark(state.dirty1, row, tile, moved)
                    flags[tile] = 1  # its own multipliers changed
            else:
                if plan.few:
                    change, moved = few_phase1(plan, state, base, wbase, inverse, limit)
                else:
                    change = _phase1(plan, state, base, wbase, inverse, g, p)
                    moved = less_mask(limit, change)
                    if moved != 0:
                        _accept1(plan, state, base, limit, change, p)
                if moved != 0:
                    _mark(state.dirty2, row, tile, moved)
            total = total + choose_less(limit, change, change, limit - limit)
        base += LANES if plan.few else size
        wbase += LANES
    state.residual[1 if second else 0, row - 1] = lane_sum(total)
    return work


@compiled
def _strip(plan, state, rho, relax, eps, lo, hi, edges):
    """Rows lo..hi of one iteration: both phases except phase 2 along the edges, or (after a barrier) those edges."""
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
def _sweeps(plan, state, rho, relax, eps, iterations, strips, cached, work, total, thread, threads, progress):
    """One thread's share; all meet between strips and their edges, after these, and when the first has added up."""
    count = len(strips) - 1
    first, last = count * thread // threads, count * (thread + 1) // threads
    met = 0
    for _ in range(iterations):
        if not cached:
            met += 1
            if thread == 0:
                grid_touch(state)
            if not meet(progress, thread, threads, met):
                return
        for edges in (False, True):
            for b in range(first, last):
                work[b] += _strip(plan, state, rho, relax, eps, strips[b], strips[b + 1], edges)
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
) -> tuple[float, int]:
    """Iterations at one rho.  Returns (squared residual of the last one, tiles computed in phase 1)."""
    work, total = np.zeros(len(strips) - 1, np.int64), np.zeros(1)
    together(team, _sweeps, team, plan, state, rho, relax, eps, iterations, strips, cached, work, total)
    return float(total[0]), int(work.sum())
