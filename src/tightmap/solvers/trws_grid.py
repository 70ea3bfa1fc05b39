"""TRW-S sweeps on 4-connected grids, eight rows at a time.

The sweep visits the pixels in raster order, and a pixel only waits for its left and upper neighbours.  Pixels on an
anti-diagonal are therefore independent, and visiting eight of them together gives exactly (bit for bit) what the
raster order gives.  So the image is cut into strips of eight rows, lane l of a SIMD register holds row l of the strip,
and at step k lane l is at column k - l:

    node (8 p + l, c)   is lane l of strip p at step k = c + l,      0 <= k < steps = width + 7.

Everything is stored in that order, [strip][step][label][lane], and streams through memory in a straight line; labels
are visited one after the other, so truncated linear, quadratic, Potts and shared-table messages need no shuffling
and no padding of the labels, whatever their number.  Lanes that are outside the image meet edges of weight zero,
whose messages stay zero.

One message per edge (algorithms.md, 1.6): ``right`` and ``down`` hold the message of the edge to the right and lower
neighbour, in whichever direction it was sent last, at the place of the left or upper pixel.  The edges from lane 7 to
lane 0 of the next strip are in ``across`` [strip][7 + column][label] (their place in ``down`` is not used), so that
no strip touches the cache lines of another.

With several threads the strips are dealt out in turn, and a strip follows its predecessor at a distance of a few steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from tightmap.simd import (
    LANES,
    cast,
    choose_less,
    lane,
    get,
    load,
    maximum,
    minimum,
    put,
    replace_last,
    shift_down,
    shift_up,
    splat,
    store,
)
from tightmap.sync import publish, wait_for

FAST = {"contract", "nsz"}
WINDOW, SWEEP, TABLE = 0, 1, 2  # how a message is computed
CHUNK = 32  # steps between two reports to the next strip


class GridArrays(NamedTuple):
    """A grid model in strip order.  Weights, labels and messages have one step of padding in front (and behind)."""

    height: int
    width: int
    labels: int
    strips: int
    steps: int
    mode_right: int
    window_right: int
    mode_down: int
    window_down: int
    unary: npt.NDArray  # [strips][steps][labels][lane], search precision
    gamma: npt.NDArray  # [strips][steps][lane], 1 / max(edges forward, edges backward)
    weight_right: npt.NDArray  # [1 + strips * steps + 1][lane], float64
    weight_down: npt.NDArray
    shape_right: npt.NDArray  # mode, window, kind, truncation, then g(1..window) or the table
    shape_down: npt.NDArray
    right: npt.NDArray  # messages
    down: npt.NDArray
    across: npt.NDArray
    chosen: npt.NDArray  # [1 + strips * steps + 1][lane], the labels of the last rounding


@njit(nogil=True, fastmath=FAST, forceinline=True)
def _pair(shape, labels, distance_from, label, weight):
    """weight * table(label, other) for a vector of other labels."""
    kind = shape[2]
    if kind < 0:  # shared table, symmetric in neither argument: other labels are the first index
        value = splat(shape[3])
        return value
    d = distance_from - label
    d = maximum(d, label - distance_from)
    if kind == 3:
        d = d * d
    return weight * minimum(d, splat(shape[3]))


@njit(nogil=True, fastmath=FAST, forceinline=True)
def _prepare(h, labels, pad, mode, window, shape, weight, steps_of_g):
    """What one message needs before its entries can be read off: sweeps of the distance transform, weighted g."""
    if mode == SWEEP:
        previous = load(h, pad * LANES)
        for s in range(1, labels):
            previous = minimum(load(h, (pad + s) * LANES), previous + weight)
            store(h, (pad + s) * LANES, previous)
        for s in range(labels - 2, -1, -1):
            previous = minimum(load(h, (pad + s) * LANES), previous + weight)
            store(h, (pad + s) * LANES, previous)
    elif mode == WINDOW:
        for k in range(window):
            store(steps_of_g, k * LANES, weight * splat(shape[4 + k]))


@njit(nogil=True, fastmath=FAST, forceinline=True)
def _entry(h, t, pad, mode, window, shape, weight, steps_of_g, lowest, cap):
    """Entry t of the message: min_s h(s) + weight * table(s, t), less min h."""
    value = minimum(load(h, (pad + t) * LANES), cap)
    if mode == WINDOW:
        for k in range(window):
            near = minimum(load(h, (pad + t - 1 - k) * LANES), load(h, (pad + t + 1 + k) * LANES))
            value = minimum(value, near + load(steps_of_g, k * LANES))
    return value - lowest


@njit(cache=True, nogil=True, fastmath=FAST)
def _forward_strip(grid, p, first, last, rounding, scratch):
    """Steps first..last-1 of strip p, sending to the right and down; returns the energy of the labels chosen."""
    S = grid.labels
    row = S * LANES
    right, down, across, chosen = grid.right, grid.down, grid.across, grid.chosen
    a, b, g1, g2 = scratch[0], scratch[1], scratch[2], scratch[3]
    sr, sd = grid.shape_right, grid.shape_down
    pad = max(grid.window_right, grid.window_down)
    crow = (grid.steps + 7) * S
    zero = splat(sr[3]) - splat(sr[3])
    huge = splat(a[0]) # BIG pad
    for k in range(first, last):
        node = p * grid.steps + k
        here = (node + 1) * row  # messages have one step of padding in front
        into, out = p * crow + (7 + k) * S, (p + 1) * crow + k * S
        gamma = load(grid.gamma, node * LANES)
        w_right = cast(load(grid.weight_right, (node + 1) * LANES), right)
        w_down = cast(load(grid.weight_down, (node + 1) * LANES), right)
        low_a, low_b = huge, huge
        if rounding:
            pass
        for s in range(S):
            o = s * LANES
            old_right = load(right, here + o)
            old_down = replace_last(load(down, here + o), get(across, out + s))
            total = load(grid.unary, node * row + o) + old_right + old_down
            total = total + load(right, here - row + o) + shift_up(load(down, here - row + o), get(across, into + s))
            share = gamma * total
            to_right = share - old_right
            to_down = share - old_down
            low_a = minimum(low_a, to_right)
            low_b = minimum(low_b, to_down)
            store(a, pad * LANES + o, to_right)
            store(b, pad * LANES + o, to_down)
        _prepare(a, S, pad, grid.mode_right, grid.window_right, sr, w_right, g1)
        _prepare(b, S, pad, grid.mode_down, grid.window_down, sd, w_down, g2)
        cap_a = low_a + w_right * splat(sr[3])
        cap_b = low_b + w_down * splat(sd[3])
        for t in range(S):
            o = t * LANES
            store(right, here + o, _entry(a, t, pad, grid.mode_right, grid.window_right, sr, w_right, g1, low_a, cap_a))
            v = _entry(b, t, pad, grid.mode_down, grid.window_down, sd, w_down, g2, low_b, cap_b)
            store(down, here + o, replace_last(v, right[0]))
            put(across, out + t, lane(v, 7))
    return 0.0


@njit(cache=True, nogil=True, fastmath=FAST)
def _backward_strip(grid, p, first, last, rounding, scratch):
    S = grid.labels
    row = S * LANES
    right, down, across = grid.right, grid.down, grid.across
    a, b, g1, g2 = scratch[0], scratch[1], scratch[2], scratch[3]
    sr, sd = grid.shape_right, grid.shape_down
    pad = max(grid.window_right, grid.window_down)
    crow = (grid.steps + 7) * S
    huge = splat(a[0])
    for k in range(last - 1, first - 1, -1):
        node = p * grid.steps + k
        here = (node + 1) * row
        into, out = p * crow + (7 + k) * S, (p + 1) * crow + k * S
        gamma = load(grid.gamma, node * LANES)
        w_left = cast(load(grid.weight_right, node * LANES), right)
        w_up = load(grid.weight_down, node * LANES)
        above = 0.0
        if p > 0:
            above = grid.weight_down[((p - 1) * grid.steps + k + 8) * LANES + 7]
        w_up = cast(shift_up(w_up, above), right)
        low_a, low_b = huge, huge
        for s in range(S):
            o = s * LANES
            old_left = load(right, here - row + o)
            old_up = shift_up(load(down, here - row + o), get(across, into + s))
            total = load(grid.unary, node * row + o) + old_left + old_up
            total = total + load(right, here + o) + replace_last(load(down, here + o), get(across, out + s))
            share = gamma * total
            to_left = share - old_left
            to_up = share - old_up
            low_a = minimum(low_a, to_left)
            low_b = minimum(low_b, to_up)
            store(a, pad * LANES + o, to_left)
            store(b, pad * LANES + o, to_up)
        _prepare(a, S, pad, grid.mode_right, grid.window_right, sr, w_left, g1)
        _prepare(b, S, pad, grid.mode_down, grid.window_down, sd, w_up, g2)
        cap_a = low_a + w_left * splat(sr[3])
        cap_b = low_b + w_up * splat(sd[3])
        for t in range(S):
            o = t * LANES
            store(right, here - row + o, _entry(a, t, pad, grid.mode_right, grid.window_right, sr, w_left, g1, low_a, cap_a))
            v = _entry(b, t, pad, grid.mode_down, grid.window_down, sd, w_up, g2, low_b, cap_b)
            put(across, into + t, lane(v, 0))
            store(down, here - row + o, shift_down(v, right[0]))
    return 0.0


@njit(cache=True, nogil=True)
def run(grid, thread, threads, iterations, progress):
    """This thread's share of some iterations (a forward and a backward sweep each)."""
    shape = grid.shape_right
    pad = max(grid.window_right, grid.window_down)
    scratch = np.full((4, (grid.labels + 2 * pad + 2) * LANES), 1e30, dtype=grid.right.dtype)
    for it in range(iterations):
        goal = 2 * it * (grid.steps + 1)
        for p in range(thread, grid.strips, threads):
            for first in range(0, grid.steps, CHUNK):
                last = min(first + CHUNK, grid.steps)
                if p > 0 and threads > 1:
                    wait_for(progress, (p - 1) * 8, goal + min(last + 7, grid.steps))
                _forward_strip(grid, p, first, last, False, scratch)
                if threads > 1:
                    publish(progress, p * 8, goal + last)
        goal += grid.steps + 1
        start = thread + (grid.strips - 1 - thread) // threads * threads
        for p in range(start, -1, -threads):
            for last in range(grid.steps, 0, -CHUNK):
                first = max(last - CHUNK, 0)
                if p < grid.strips - 1 and threads > 1:
                    wait_for(progress, (p + 1) * 8, goal + min(grid.steps - first + 7, grid.steps))
                _backward_strip(grid, p, first, last, False, scratch)
                if threads > 1:
                    publish(progress, p * 8, goal + grid.steps - first)
