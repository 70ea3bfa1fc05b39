"""The certified bound of TRW-S messages on a grid, without a second copy of them.

After a forward pass the stored messages m_{i->j} (i before j) are numbers like any others.  One backward pass from
them in float64 gives, for the node i with earlier neighbours e and later neighbours l (docs/maths.md),

    total_i = theta_i + sum_e m_{e->i} + sum_l m_{l->i},      h = gamma_i total_i - m_{e->i},
    m_{i->e}(s) = min_t [h(t) + theta_ei(s, t)] - min h .

Moving m_{i->e} from the edge to e and -h from the edge to i leaves every edge with a minimum of exactly min h, and
node i with (1 - gamma_i |e|) total_i.  Hence, whatever the stored messages are,

    bound = constant + sum over edges of min h + sum_i (1 - gamma_i |e|) min total_i

is the bound of a reparametrisation, up to float64 rounding.  Messages of this pass live only until their receiver has
been visited: one step of a strip and one row between strips.

Rounding.  With w the weights of the edges of node i and T the truncation, every message entry is in [0, w T]; entries
of h above min h + w T have no effect.  All sums that matter are therefore of at most six terms no larger than
|min total| + |min h| + 5 sum(w) T in absolute value, and their errors are below 64 units of that size.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import (
    LANES,
    cast,
    get,
    lane,
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
from tightmap.runtime.sync import publish, wait_for
from tightmap.solvers.trws.grid import CHUNK, FAST, entry, prepare, weight_above


@compiled(_nrt=False, forceinline=True)
def _gather(unary, grid, p, k, out):
    """Float64 unaries of the eight pixels at step k, [label][lane], zero outside the image."""
    S = grid.labels
    for l in range(LANES):
        r, c = p * LANES + l, k - l
        if r < grid.height and 0 <= c < grid.width:
            base = (r * grid.width + c) * S
            for s in range(S):
                put(out, s * LANES + l, get(unary, base + s))
        else:
            for s in range(S):
                put(out, s * LANES + l, 0.0)


@compiled(_nrt=False, fastmath=FAST)
def bound_steps(grid, unary, profile, p, first, last, sums, below, above, a, b, left, up, rise_a, rise_b, theta):
    """Steps last - 1, ..., first of strip p in float64; ``left`` and ``up`` hold the messages of the step before."""
    S, right, down, across = grid.labels, grid.right, grid.down, grid.across
    row, pad = S * LANES, max(grid.window, 0)
    truncation = splat(get(profile, 0))
    for k in range(last - 1, first - 1, -1):
        node = p * grid.steps + k
        here = (node + 1) * row
        into = (p * (grid.steps + 7) + 7 + k) * S
        gamma = cast(load(grid.gamma, node * LANES), unary)
        w_a = load(grid.weight_right, node * LANES)
        w_b = weight_above(grid, p, k)
        _gather(unary, grid, p, k, theta)
        low_a = splat(1e300)
        low_b = low_a
        low = low_a
        for s in range(S):
            o = s * LANES
            old_a = cast(load(right, here - row + o), unary)
            old_b = cast(shift_up(load(down, here - row + o), get(across, into + s)), unary)
            total = load(theta, o) + old_a + old_b
            total = total + load(left, o) + replace_last(load(up, o), get(below, k * S + s))
            h_a = gamma * total - old_a
            h_b = gamma * total - old_b
            low = minimum(low, total)
            low_a = minimum(low_a, h_a)
            low_b = minimum(low_b, h_b)
            store(a, pad * LANES + o, h_a)
            store(b, pad * LANES + o, h_b)
        prepare(a, S, pad, grid.window, profile, w_a, rise_a)
        prepare(b, S, pad, grid.window, profile, w_b, rise_b)
        cap_a = low_a + w_a * truncation
        cap_b = low_b + w_b * truncation
        for t in range(S):
            o = t * LANES
            store(left, o, entry(a, t, pad, grid.window, rise_a, low_a, cap_a))
            v = entry(b, t, pad, grid.window, rise_b, low_b, cap_b)
            put(above, (7 + k) * S + t, lane(v, 0))
            store(up, o, shift_down(v, 0.0))
        # what the lanes inside the image add
        w_right = load(grid.weight_right, (node + 1) * LANES)
        w_down = load(grid.weight_down, (node + 1) * LANES)
        zero = splat(0.0)
        size = maximum(low, zero - low) + maximum(low_a, zero - low_a) + maximum(low_b, zero - low_b)
        size = size + splat(5.0) * truncation * (w_a + w_b + w_right + w_down)
        store(theta, 0, low)
        store(rise_a, 0, low_a)
        store(rise_b, 0, low_b)
        gain = 0.0
        for l in range(LANES):
            r, c = p * LANES + l, k - l
            if r < grid.height and 0 <= c < grid.width:
                earlier = 0
                if c > 0:
                    earlier += 1
                    gain += rise_a[l]
                if r > 0:
                    earlier += 1
                    gain += rise_b[l]
                gain += (1.0 - grid.gamma[node * LANES + l] * earlier) * theta[l]
                sums[p, 1] += lane(size, l)
        sums[p, 0] += gain


@compiled
def bound_sweep(grid, unary, profile, sums, rows, thread, threads, progress):
    """This thread's share of the pass.  sums [strip][bound, size]; rows [threads + 1][columns + 14][label], zeros."""
    S, pad = grid.labels, max(grid.window, 0)
    a = np.full((S + 2 * pad) * LANES, 1e300)
    b = np.full((S + 2 * pad) * LANES, 1e300)
    rise_a = np.zeros((pad + 1) * LANES)
    rise_b = np.zeros((pad + 1) * LANES)
    left = np.zeros(S * LANES)
    up = np.zeros(S * LANES)
    theta = np.zeros(S * LANES)
    for turn in range(thread, grid.strips, threads):
        p = grid.strips - 1 - turn
        below, above = rows[(p + 1) % (threads + 1)], rows[p % (threads + 1)]
        left[:] = 0.0
        up[:] = 0.0
        for done in range(0, grid.steps, CHUNK):
            end = min(done + CHUNK, grid.steps)
            if threads > 1 and turn > 0 and not wait_for(progress, (p + 1) * LANES, min(end + LANES - 1, grid.steps)):
                return
            first, last = grid.steps - end, grid.steps - done
            bound_steps(grid, unary, profile, p, first, last, sums, below, above, a, b, left, up, rise_a, rise_b, theta)
            publish(progress, p * LANES, end)
