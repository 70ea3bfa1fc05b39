"""The certified bound of TRW-S messages on a grid, without a second copy of them.

After a forward pass the stored messages m_{i->j} (i before j) are numbers like any others.  One backward pass from
them in float64 gives, for the node i with earlier neighbours e and later neighbours l (docs/maths.md),

    total_i = theta_i + sum_e m_{e->i} + sum_l m_{l->i},      h = gamma_i total_i - m_{e->i},
    m_{i->e}(s) = min_t [h(t) + theta_ei(s, t)] - min h .

Moving m_{i->e} from the edge to e and -h from the edge to i leaves every edge with a minimum of exactly min h, and
node i with (1 - gamma_i |e|) total_i.  Hence, whatever the stored messages are,

    bound = constant + sum over edges of min h + sum_i (1 - gamma_i |e|) min total_i

is the bound of a reparametrisation, up to float64 rounding, as long as no node keeps less than nothing: gamma_i |e| is
at most 1 (strips.gammas).  Messages of this pass live only until their receiver has been visited: up to three steps of
a strip, and one row between strips.  Pairs of weight zero are no edges, and lanes outside the image add nothing.

Rounding.  With w the weights of the edges of node i and T the truncation, every message entry is in [0, w T]; entries
of h above min h + w T have no effect, and a total that matters is therefore at most (|min h| + 2 w T) / gamma.  With
1 / gamma <= 4, all sums are of at most ten terms, and after multiplication by gamma the errors of one node are below 64
units of |min total| + sum |min h| + 5 sum(w) T with four neighbours, below 128 with eight.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import (
    LANES,
    absolute,
    cast,
    choose_less,
    get,
    lane,
    load,
    minimum,
    put,
    shift_down,
    shift_up,
    splat,
    store,
)
from tightmap.runtime.sync import publish, wait_for
from tightmap.solvers.trws.grid import CHUNK, FAST, below, entry, inline, prepare, weight_above

RING = 4  # steps whose messages to the row above are kept


@inline
def _gather(unary, single, grid, p, k, lag, out):
    """Float64 unaries of the eight pixels at step k, [label][lane], zero outside the image."""
    S = grid.labels
    for l in range(LANES):
        r, c = p * LANES + l, k - lag * l
        if r < grid.height and 0 <= c < grid.width:
            base = (r * grid.width + c) * S
            if len(single) > 0:
                for s in range(S):
                    put(out, s * LANES + l, np.float64(get(single, base + s)))
            else:
                for s in range(S):
                    put(out, s * LANES + l, get(unary, base + s))
        else:
            for s in range(S):
                put(out, s * LANES + l, 0.0)


@inline
def _old(grid, at, place, like):
    """A stored message from the row above in float64."""
    return cast(shift_up(load(grid.messages, at), get(grid.across, place)), like)


@inline
def _steps(grid, unary, single, profile, p, first, last, sums, under, over, h, rises, left, lower, theta, eight):
    """Steps last - 1, ..., first of strip p in float64.

    ``left`` holds the messages of the step before along the rows, ``lower`` [step % RING][label][direction - 1] those
    to the row above; ``under`` and ``over`` those from the next strip and to the one before.
    """
    S, m = grid.labels, grid.messages
    directions, lag = (4, 2) if eight else (2, 1)
    size, side = directions * LANES, directions - 1
    cell, fall, pad = S * size, S * side, max(grid.window, 0) * size
    ring = fall * LANES
    zero, one, limit = splat(0.0), splat(1.0), splat(get(profile, 0))
    for k in range(last - 1, first - 1, -1):
        node = p * grid.steps + k
        here = (node + lag + 1) * cell
        into = (p * grid.span + (LANES - 1) * lag + k) * fall
        from_b, from_c, from_d = (k + lag) % RING * ring, (k + 1) % RING * ring, (k + 3) % RING * ring
        border = get(grid.border, p) + k
        gamma = cast(load(grid.gamma, border * LANES), unary)
        _gather(unary, single, grid, p, k, lag, theta)
        low = splat(1e300)
        low_a, low_b, low_c, low_d = low, low, low, low
        for s in range(S):
            o, i = s * size, s * side
            old_a = cast(load(m, here - cell + o), unary)
            old_b = _old(grid, here - lag * cell + o + LANES, into + i, unary)
            total = load(theta, s * LANES) + old_a + old_b
            old_c, old_d = old_a, old_b
            if eight:
                old_c = _old(grid, here - cell + o + 2 * LANES, into + fall + i + 1, unary)
                old_d = _old(grid, here - 3 * cell + o + 3 * LANES, into - fall + i + 2, unary)
                total = total + old_c + old_d
            total = total + load(left, s * LANES) + below(lower, from_b + i * LANES, under, k * fall + i)
            if eight:
                total = total + below(lower, from_c + (i + 1) * LANES, under, k * fall + i + 1)
                total = total + below(lower, from_d + (i + 2) * LANES, under, k * fall + i + 2)
            low = minimum(low, total)
            h_a, h_b = gamma * total - old_a, gamma * total - old_b
            low_a, low_b = minimum(low_a, h_a), minimum(low_b, h_b)
            store(h, pad + o, h_a)
            store(h, pad + o + LANES, h_b)
            if eight:
                h_c, h_d = gamma * total - old_c, gamma * total - old_d
                low_c, low_d = minimum(low_c, h_c), minimum(low_d, h_d)
                store(h, pad + o + 2 * LANES, h_c)
                store(h, pad + o + 3 * LANES, h_d)
        # what the edges to earlier neighbours and the node add, and the size of the numbers it was computed from
        place = (border + lag + 1) * size
        w_a = load(grid.weight, place - size)
        w_b = weight_above(grid, p, k, 1, 0, eight)
        earlier = choose_less(zero, w_a, one, zero) + choose_less(zero, w_b, one, zero)
        gain = choose_less(zero, w_a, low_a, zero) + choose_less(zero, w_b, low_b, zero)
        weights = w_a + w_b + load(grid.weight, place) + load(grid.weight, place + LANES)
        amount = absolute(low) + absolute(low_a) + absolute(low_b)
        w_c, w_d = w_a, w_b
        if eight:
            w_c, w_d = weight_above(grid, p, k, 2, -1, eight), weight_above(grid, p, k, 3, 1, eight)
            earlier = earlier + choose_less(zero, w_c, one, zero) + choose_less(zero, w_d, one, zero)
            gain = gain + choose_less(zero, w_c, low_c, zero) + choose_less(zero, w_d, low_d, zero)
            weights = weights + w_c + w_d + load(grid.weight, place + 2 * LANES) + load(grid.weight, place + 3 * LANES)
            amount = amount + absolute(low_c) + absolute(low_d)
        gain = gain + (one - gamma * earlier) * low
        amount = amount + splat(5.0) * limit * weights
        store(sums, 2 * p * LANES, load(sums, 2 * p * LANES) + gain)
        store(sums, (2 * p + 1) * LANES, load(sums, (2 * p + 1) * LANES) + amount)
        # the messages
        prepare(h, pad, S, grid.window, profile, w_a, w_b, w_c, w_d, rises, eight)
        cap_a, cap_b, cap_c, cap_d = low_a + w_a * limit, low_b + w_b * limit, low_c + w_c * limit, low_d + w_d * limit
        to, place = k % RING * ring, ((LANES - 1) * lag + k) * fall
        for t in range(S):
            at, i = pad + t * size, t * side
            store(left, t * LANES, entry(h, at, grid.window, rises, 0, size, low_a, cap_a))
            v = entry(h, at + LANES, grid.window, rises, LANES, size, low_b, cap_b)
            put(over, place + i, lane(v, 0))
            store(lower, to + i * LANES, shift_down(v, 0.0))
            if eight:
                v = entry(h, at + 2 * LANES, grid.window, rises, 2 * LANES, size, low_c, cap_c)
                put(over, place + fall + i + 1, lane(v, 0))
                store(lower, to + (i + 1) * LANES, shift_down(v, 0.0))
                v = entry(h, at + 3 * LANES, grid.window, rises, 3 * LANES, size, low_d, cap_d)
                put(over, place - fall + i + 2, lane(v, 0))
                store(lower, to + (i + 2) * LANES, shift_down(v, 0.0))


@compiled(_nrt=False, fastmath=FAST)
def steps_four(grid, unary, single, profile, p, first, last, sums, under, over, h, rises, left, lower, theta):
    _steps(grid, unary, single, profile, p, first, last, sums, under, over, h, rises, left, lower, theta, False)


@compiled(_nrt=False, fastmath=FAST)
def steps_eight(grid, unary, single, profile, p, first, last, sums, under, over, h, rises, left, lower, theta):
    _steps(grid, unary, single, profile, p, first, last, sums, under, over, h, rises, left, lower, theta, True)


@compiled
def bound_sweep(grid, unary, single, profile, sums, rows, thread, threads, progress):
    """This thread's share of the pass.

    sums [strip][bound, size][lane] and rows [threads + 1][span][label][direction - 1] are zeros in the beginning.
    """
    S, pad = grid.labels, max(grid.window, 0)
    directions, ahead = (4, 2 * LANES - 1) if grid.eight else (2, LANES - 1)
    h = np.full(directions * (S + 2 * pad) * LANES, 1e300)
    rises = np.zeros((pad + 1) * directions * LANES)
    left = np.zeros(S * LANES)
    lower = np.zeros((directions - 1) * RING * S * LANES)
    theta = np.zeros(S * LANES)
    for turn in range(thread, grid.strips, threads):
        p = grid.strips - 1 - turn
        under, over = rows[(p + 1) % (threads + 1)], rows[p % (threads + 1)]
        left[:] = 0.0
        lower[:] = 0.0
        for done in range(0, grid.steps, CHUNK):
            end = min(done + CHUNK, grid.steps)
            if threads > 1 and turn > 0 and not wait_for(progress, (p + 1) * LANES, min(end + ahead, grid.steps)):
                return
            first, last = grid.steps - end, grid.steps - done
            if grid.eight:
                steps_eight(
                    grid, unary, single, profile, p, first, last, sums, under, over, h, rises, left, lower, theta
                )
            else:
                steps_four(
                    grid, unary, single, profile, p, first, last, sums, under, over, h, rises, left, lower, theta
                )
            publish(progress, p * LANES, end)
