"""ADMM sweeps on regular grids: implicit neighbours, columns as vector lanes, exact caching, row-parallel.

The symmetrised two-copy ADMM of a pairwise model (algorithms of ``admm.py`` with D = 2) does, per iteration,

    phase 1   x1_i = simplex( x2_i - (y_i + u_i + p_i(x2)) / rho )
    phase 2   xh = a x1_i + (1 - a) x2_i,   x2_i' = max(0, xh + (y_i - p_i(x1)) / rho),   y_i += rho (xh - x2_i')

with p_i(x) = 1/2 sum_j w_ij V x_j.  On a grid with one shared table V(s, t) = min(g(|s - t|), T) the neighbours are
summed first and V is applied once, as a short filter: V z = T sum(z) - sum_k (T - g(|k|)) z(. + k).

Layout.  Every array of vectors is flat, [row][label][column], so that a loop over columns is a loop over contiguous
memory whatever the number of labels is, and the projection on the simplex (Newton's method on its dual, started from
the support of the last iterate) runs on all columns of a segment at once.  Rows have a zero border, edges that do not
exist have weight zero, columns beyond the width are nodes without costs that never move.

Caching.  Columns are grouped in tiles.  A tile is skipped while nothing that it reads has changed, bit for bit.  A
node whose vector would change by less than ``eps`` (squared) keeps it: with that rule in the definition of the sweep,
cached and uncached sweeps are identical, and frozen regions cost nothing.  A new rho makes every tile dirty.

Parallel.  Phase 2 of row r runs as soon as phase 1 of row r + R is done (R the radius of the stencil), which changes
no value and keeps the rows in cache; strips of rows go to threads, and the rows along a strip's edge are finished
after a barrier.  Residuals are summed per row, in order: the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from tightmap.stencil import Stencil

TILE = 16  # columns whose changes are tracked together
_FAST = {"reassoc", "contract", "arcp", "nsz"}


class GridPlan(NamedTuple):
    """Everything about the model that a sweep reads.  Flat arrays of one float type."""

    height: int
    width: int  # padded to a multiple of TILE
    labels: int
    radius: int
    segment: int  # most columns to process together (scratch that fits the first-level cache)
    shift: npt.NDArray[np.int64]  # (Q,) neighbour offsets (rows, columns) flattened in the vector arrays
    wshift: npt.NDArray[np.int64]  # (Q,) where the weight of that neighbour is in ``weight``, relative to the node
    weight: npt.NDArray[np.floating]  # (K + 1, height + 2 radius, width) half weights; the last plane is zero
    unary: npt.NDArray[np.floating]  # (height + 2 radius, labels, width)
    top: np.floating  # T
    taps: npt.NDArray[np.floating]  # (K,) T - g(0), T - g(1), ... > 0


class GridState(NamedTuple):
    """Iterates and activity flags of one run (vectors in the layout of ``GridPlan.unary``)."""

    x1: npt.NDArray[np.floating]
    x2: npt.NDArray[np.floating]
    y: npt.NDArray[np.floating]
    dirty1: npt.NDArray[np.uint8]  # (height + 2 radius, tiles + 2)
    dirty2: npt.NDArray[np.uint8]
    residual: npt.NDArray[np.float64]  # (2, height)


def guard(plan: GridPlan) -> int:
    """Floats before and after the rows of a vector array, so that a shifted read stays inside."""
    return TILE + plan.radius


def grid_plan(stencil: Stencil, unary: npt.NDArray[np.float64], dtype: type) -> GridPlan:
    """Plan of a stencil with the given unaries, shape (height * width, labels)."""
    height, columns, labels, radius = stencil.height, stencil.width, stencil.labels, stencil.radius
    width = -(-columns // TILE) * TILE
    top = float(stencil.profile.max())
    taps = top - stencil.profile[: int(np.count_nonzero(np.cumsum(stencil.profile >= top) == 0))]
    count = len(stencil.displacements)
    plane = (height + 2 * radius) * width
    weight = np.zeros((count + 1, height + 2 * radius, width), dtype)
    weight[:count, radius : radius + height, :columns] = stencil.weights / 2
    shift, wshift = [], []
    for k, (down, right) in enumerate(stencil.displacements):
        shift += [down * labels * width + right, -(down * labels * width + right)]
        wshift += [k * plane, k * plane - (down * width + right)]
    while len(shift) % 4:
        shift.append(0)
        wshift.append(count * plane)
    padded = np.zeros((height + 2 * radius, labels, width), dtype)
    padded[radius : radius + height, :, :columns] = unary.reshape(height, columns, labels).transpose(0, 2, 1)
    segment = max(TILE, min(width, 2048 // labels // TILE * TILE))
    plan = GridPlan(
        height, width, labels, radius, segment, np.array(shift, np.int64), np.array(wshift, np.int64),
        weight.ravel(), padded.ravel(), dtype(top), taps.astype(dtype),
    )  # fmt: skip
    pad = guard(plan)
    return plan._replace(weight=np.pad(plan.weight, pad), unary=np.pad(plan.unary, pad))


def grid_state(plan: GridPlan) -> GridState:
    """Room for one run; fill it with ``grid_reset``."""
    size = len(plan.unary)
    rows, tiles = plan.height + 2 * plan.radius, plan.width // TILE + 2
    dtype = plan.unary.dtype
    return GridState(
        np.zeros(size, dtype), np.zeros(size, dtype), np.zeros(size, dtype),
        np.zeros((rows, tiles), np.uint8), np.zeros((rows, tiles), np.uint8), np.zeros((2, plan.height)),
    )  # fmt: skip


def _planes(plan: GridPlan, flat: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    pad = guard(plan)
    rows = flat[pad:-pad].reshape(-1, plan.labels, plan.width)
    return rows[plan.radius : plan.radius + plan.height]


def grid_reset(plan: GridPlan, state: GridState, x: npt.NDArray[np.floating], columns: int) -> None:
    """Both copies at x, shape (height * columns, labels); multipliers zero; everything dirty."""
    planes = _planes(plan, state.x1)
    planes[:, :, :columns] = x.reshape(plan.height, columns, plan.labels).transpose(0, 2, 1)
    planes[:, :, columns:] = 0
    planes[:, 0, columns:] = 1  # nodes outside the image: one-hot, without costs, never move
    state.x2[:] = state.x1
    state.y[:] = 0
    grid_touch(state)


def grid_touch(state: GridState) -> None:
    """Forget what is cached (after a change of rho or of the unaries)."""
    state.dirty1[:] = 1
    state.dirty2[:] = 1


def grid_read(plan: GridPlan, flat: npt.NDArray[np.floating], columns: int) -> npt.NDArray[np.float64]:
    """Vectors of a state, shape (height * columns, labels)."""
    planes = _planes(plan, flat)[:, :, :columns]
    return np.ascontiguousarray(planes.transpose(0, 2, 1), dtype=np.float64).reshape(-1, plan.labels)


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _gather(plan, source, base, wbase, n, g, p, total):
    """p = (T sum - taps) of the weighted neighbours: the vectors V (1/2 sum_j w_ij x_j) of n columns."""
    labels, width, stride = plan.labels, plan.width, plan.segment
    w = plan.weight
    taps = len(plan.taps)
    n = np.uintp(n)
    zero = plan.top * 0
    for t in range(n):
        total[t] = zero
    for q in range(0, len(plan.shift), 4):
        v0, v1 = np.uintp(wbase + plan.wshift[q]), np.uintp(wbase + plan.wshift[q + 1])
        v2, v3 = np.uintp(wbase + plan.wshift[q + 2]), np.uintp(wbase + plan.wshift[q + 3])
        for s in range(labels):
            line = base + s * width
            a0, a1 = np.uintp(line + plan.shift[q]), np.uintp(line + plan.shift[q + 1])
            a2, a3 = np.uintp(line + plan.shift[q + 2]), np.uintp(line + plan.shift[q + 3])
            o = np.uintp((s + taps) * stride)
            if q == 0:
                for t in range(n):
                    z = (w[v0 + t] * source[a0 + t] + w[v1 + t] * source[a1 + t]) + (
                        w[v2 + t] * source[a2 + t] + w[v3 + t] * source[a3 + t]
                    )
                    g[o + t] = z
                    total[t] += z
            else:
                for t in range(n):
                    z = (w[v0 + t] * source[a0 + t] + w[v1 + t] * source[a1 + t]) + (
                        w[v2 + t] * source[a2 + t] + w[v3 + t] * source[a3 + t]
                    )
                    g[o + t] += z
                    total[t] += z
    top, tap = plan.top, plan.taps[0]
    for t in range(n):
        total[t] *= top
    for s in range(labels):
        o, c = np.uintp(s * stride), np.uintp((s + taps) * stride)
        if taps == 1:
            for t in range(n):
                p[o + t] = total[t] - tap * g[c + t]
        else:
            one = plan.taps[1]
            up, dn = np.uintp((s + taps - 1) * stride), np.uintp((s + taps + 1) * stride)
            for t in range(n):
                p[o + t] = total[t] - tap * g[c + t] - one * (g[up + t] + g[dn + t])
            for k in range(2, taps):
                one = plan.taps[k]
                up, dn = np.uintp((s + taps - k) * stride), np.uintp((s + taps + k) * stride)
                for t in range(n):
                    p[o + t] -= one * (g[up + t] + g[dn + t])


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _phase1(plan, state, row, first, n, inverse, eps, g, p, b):
    """Phase 1 on columns first..first + n of a row; squared changes per column are left in b[4]."""
    labels, width, stride = plan.labels, plan.width, plan.segment
    pad = TILE + plan.radius
    base = pad + (row + plan.radius) * labels * width + first
    wbase = pad + (row + plan.radius) * width + first
    _gather(plan, state.x2, base, wbase, n, g, p, b[0])
    x1, x2, y, u = state.x1, state.x2, state.y, plan.unary
    n = np.uintp(n)
    zero = plan.top * 0
    one = zero + 1
    mean, mass, count, tau, change = b[0], b[1], b[2], b[3], b[4]
    for t in range(n):
        mean[t] = -one
        mass[t] = -one
        count[t] = zero
        tau[t] = -1e30
        change[t] = zero
    for s in range(labels):  # c, and three lower bounds of the threshold: mean, maximum, last support
        o, a = np.uintp(s * stride), np.uintp(base + s * width)
        for t in range(n):
            c = x2[a + t] - (y[a + t] + u[a + t] + p[o + t]) * inverse
            p[o + t] = c
            mean[t] += c
            tau[t] = tau[t] if tau[t] > c else c
            live = x1[a + t] > zero
            mass[t] += c if live else zero
            count[t] += one if live else zero
    share = one / labels
    for t in range(n):
        c = tau[t] - one
        m = mean[t] * share
        c = c if c > m else m
        m = mass[t] / (count[t] if count[t] > zero else one)
        tau[t] = m if (m > c and count[t] > zero) else c
    before = one * 1e30
    for _ in range(labels + 1):  # Newton from below: the support only shrinks, and it is exact when it stops
        for t in range(n):
            mass[t] = -one
            count[t] = zero
        for s in range(labels):
            o = np.uintp(s * stride)
            for t in range(n):
                c = p[o + t]
                live = c > tau[t]
                mass[t] += c if live else zero
                count[t] += one if live else zero
        now = zero
        for t in range(n):
            now += count[t]
            m = mass[t] / (count[t] if count[t] > zero else one)
            tau[t] = m if (m > tau[t] and count[t] > zero) else tau[t]
        if now >= before:
            break
        before = now
    for s in range(labels):
        o, a = np.uintp(s * stride), np.uintp(base + s * width)
        for t in range(n):
            c = p[o + t] - tau[t]
            c = c if c > zero else zero
            d = c - x1[a + t]
            change[t] += d * d
            p[o + t] = c
    for s in range(labels):
        o, a = np.uintp(s * stride), np.uintp(base + s * width)
        for t in range(n):
            x1[a + t] = p[o + t] if change[t] > eps else x1[a + t]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _phase2(plan, state, row, first, n, rho, inverse, relax, eps, g, p, b):
    """Phase 2 and the multipliers on columns of a row; squared changes plus squared infeasibility are left in b[4]."""
    labels, width, stride = plan.labels, plan.width, plan.segment
    pad = TILE + plan.radius
    base = pad + (row + plan.radius) * labels * width + first
    wbase = pad + (row + plan.radius) * width + first
    _gather(plan, state.x1, base, wbase, n, g, p, b[0])
    x1, x2, y = state.x1, state.x2, state.y
    n = np.uintp(n)
    zero = plan.top * 0
    keep = zero + 1 - relax
    change = b[4]
    for t in range(n):
        change[t] = zero
    for s in range(labels):
        o, a = np.uintp(s * stride), np.uintp(base + s * width)
        for t in range(n):
            old = x2[a + t]
            mix = relax * x1[a + t] + keep * old
            v = mix + (y[a + t] - p[o + t]) * inverse
            v = v if v > zero else zero
            d, e = v - old, x1[a + t] - v
            change[t] += d * d + e * e
            p[o + t] = v
    for s in range(labels):
        o, a = np.uintp(s * stride), np.uintp(base + s * width)
        for t in range(n):
            old, v = x2[a + t], p[o + t]
            mix = relax * x1[a + t] + keep * old
            moved = change[t] > eps
            y[a + t] += rho * (mix - v) if moved else zero
            x2[a + t] = v if moved else old


@njit(cache=True, nogil=True)
def _mark(flags, row, tile, radius, change, n, eps):
    """Sum of the changes of a segment; marks the tiles that read what changed.  ``row`` and ``tile`` count borders."""
    total = 0.0
    for start in range(0, n, TILE):
        left = middle = right = False
        for t in range(start, start + TILE):
            if change[t] > eps:
                total += change[t]
                left = left or t < start + radius
                right = right or t >= start + TILE - radius
                middle = True
        here = tile + start // TILE
        if middle:
            for r in range(row - radius, row + radius + 1):
                flags[r, here] = 1
                if left:
                    flags[r, here - 1] = 1
                if right:
                    flags[r, here + 1] = 1
    return total


@njit(cache=True, nogil=True)
def _row(plan, state, phase, row, rho, inverse, relax, eps, g, p, b):
    """One phase on the dirty segments of a row.  Returns the number of columns that were computed."""
    radius = plan.radius
    dirty = state.dirty1 if phase == 0 else state.dirty2
    flags = dirty[row + radius]
    tiles, longest = plan.width // TILE, plan.segment // TILE
    tile, work, total = 0, 0, 0.0
    while tile < tiles:
        if flags[tile + 1] == 0:
            tile += 1
            continue
        last = tile
        while last < tiles and last - tile < longest and flags[last + 1] != 0:
            flags[last + 1] = 0
            last += 1
        n = (last - tile) * TILE
        if phase == 0:
            _phase1(plan, state, row, tile * TILE, n, inverse, eps, g, p, b)
            total += _mark(state.dirty2, row + radius, tile + 1, radius, b[4], n, eps)
        else:
            _phase2(plan, state, row, tile * TILE, n, rho, inverse, relax, eps, g, p, b)
            for k in range(last - tile):  # the multiplier of a column that moved feeds its own next phases
                for t in range(k * TILE, (k + 1) * TILE):
                    if b[4, t] > eps:
                        flags[tile + k + 1] = 1
                        break
            total += _mark(state.dirty1, row + radius, tile + 1, radius, b[4], n, eps)
        work += n
        tile = last
    state.residual[phase, row] = total
    return work


@njit(cache=True, nogil=True)
def _strip(plan, state, rho, relax, eps, lo, hi, edges):
    """Rows lo..hi of one iteration: both phases except phase 2 along the edges, or (after a barrier) those edges."""
    inverse = (plan.top * 0 + 1) / rho
    g = np.zeros((plan.labels + 2 * len(plan.taps)) * plan.segment, plan.unary.dtype)
    p = np.empty(plan.labels * plan.segment, plan.unary.dtype)
    b = np.empty((5, plan.segment), plan.unary.dtype)
    radius, work = plan.radius, 0
    if edges:
        for row in range(lo, min(lo + radius, hi)):
            _row(plan, state, 1, row, rho, inverse, relax, eps, g, p, b)
        for row in range(max(lo + radius, hi - radius), hi):
            _row(plan, state, 1, row, rho, inverse, relax, eps, g, p, b)
    else:
        for row in range(lo, hi):
            work += _row(plan, state, 0, row, rho, inverse, relax, eps, g, p, b)
            if row - radius >= lo + radius:
                _row(plan, state, 1, row - radius, rho, inverse, relax, eps, g, p, b)
    return work


@njit(cache=True, nogil=True)
def _touch(state):
    state.dirty1[:] = 1
    state.dirty2[:] = 1


@njit(cache=True, nogil=True)
def _total(state):
    total = 0.0
    for phase in range(2):
        for row in range(state.residual.shape[1]):
            total += state.residual[phase, row]
    return total


@njit(cache=True, nogil=True, parallel=True)
def grid_sweeps(plan, state, rho, relax, eps, iterations, strips, cached):
    """Iterations at one rho.  Returns (squared residual of the last one, columns computed in phase 1)."""
    count = len(strips) - 1
    work = np.zeros(count, np.int64)
    total = 0.0
    for _ in range(iterations):
        if not cached:
            _touch(state)
        for b in prange(count):
            work[b] += _strip(plan, state, rho, relax, eps, strips[b], strips[b + 1], False)
        for b in prange(count):
            _strip(plan, state, rho, relax, eps, strips[b], strips[b + 1], True)
        total = _total(state)
        if total == 0.0:
            break
    return total, work.sum()
