"""TRW-S sweeps on grids of four or eight neighbours, eight rows at a time, in the layout of strips.py.

At every step eight pixels, one in each row of the strip, gather the messages of all neighbours and send to the later
or the earlier ones (``a`` to the right or left, ``b`` down or up, ``c`` and ``d`` along the two diagonals):

    total = theta + sum of messages,    h = gamma total - old,    new(t) = min_s [h(s) + weight cost(|s - t|)] - min h.

Functions with an argument ``eight`` are inlined where it is a constant, so that each neighbourhood has its own code.
With several threads the strips are dealt out in turn; a strip follows its predecessor at a distance of a few steps.
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
    load_as,
    minimum,
    prefetch,
    put,
    replace_last,
    shift_down,
    shift_up,
    splat,
    store,
)
from tightmap.runtime.sync import publish, wait_for

FAST = {"contract", "nsz"}
AHEAD = 4  # memory is prefetched so many steps before it is read
CHUNK = 32  # steps that are made before the thread of the next strip is told

inline = compiled(_nrt=False, fastmath=FAST, forceinline=True)


@inline
def prepare(h, at, labels, window, profile, w_a, w_b, w_c, w_d, rises, eight):
    """What messages need before their entries can be read off: weighted steps, or two sweeps over h[at:].

    h [label][direction][lane], rises [difference - 1][direction][lane].
    """
    size = (4 if eight else 2) * LANES
    if window >= 0:
        for k in range(window):
            cost = splat(get(profile, k + 1))
            store(rises, k * size, w_a * cost)
            store(rises, k * size + LANES, w_b * cost)
            if eight:
                store(rises, k * size + 2 * LANES, w_c * cost)
                store(rises, k * size + 3 * LANES, w_d * cost)
        return
    for turn in range(2):
        first, step = (at, size) if turn == 0 else (at + (labels - 1) * size, -size)
        a, b = load(h, first), load(h, first + LANES)
        c, d = a, b
        if eight:
            c, d = load(h, first + 2 * LANES), load(h, first + 3 * LANES)
        for s in range(1, labels):
            place = first + s * step
            a, b = minimum(load(h, place), a + w_a), minimum(load(h, place + LANES), b + w_b)
            store(h, place, a)
            store(h, place + LANES, b)
            if eight:
                c, d = minimum(load(h, place + 2 * LANES), c + w_c), minimum(load(h, place + 3 * LANES), d + w_d)
                store(h, place + 2 * LANES, c)
                store(h, place + 3 * LANES, d)


@inline
def entry(h, at, window, rises, rise, size, lowest, cap):
    """The entry of the message at h[at], min_s h(s) + weight * cost(|s - t|), less its minimum (which is min h)."""
    value = minimum(load(h, at), cap)
    for k in range(window):
        near = minimum(load(h, at - (1 + k) * size), load(h, at + (1 + k) * size))
        value = minimum(value, near + load(rises, rise + k * size))
    return value - lowest


@inline
def below(ary, at, across, place):
    """Of the edges from eight pixels to the row below: lane 7's number is kept in ``across``."""
    return replace_last(load(ary, at), get(across, place))


@inline
def above(ary, at, across, place):
    """Of the edges to eight pixels from the row above: lane 0's number is kept in ``across``."""
    return shift_up(load(ary, at), get(across, place))


@inline
def weight_above(grid, p, k, direction, right, eight):
    """Weights of the edges (1, right) that lead to the eight pixels at step k."""
    size, lag = (4 * LANES, 2) if eight else (2 * LANES, 1)
    last = 0.0
    if p > 0:
        sender = get(grid.border, p - 1) + k - right + (LANES - 1) * lag
        last = get(grid.weight, (sender + lag + 1) * size + direction * LANES + LANES - 1)
    return shift_up(load(grid.weight, (get(grid.border, p) + k + 1 - right) * size + direction * LANES), last)


@inline
def label_above(grid, p, k, right, lag):
    """Labels of the neighbours (-1, -right) of the eight pixels at step k; outside the image anything."""
    last = get(grid.chosen, 0)
    if p > 0:
        sender = (p - 1) * grid.steps + k - right + (LANES - 1) * lag
        last = get(grid.chosen, (sender + lag + 1) * LANES + LANES - 1)
    return shift_up(load(grid.chosen, (p * grid.steps + k + 1 - right) * LANES), last)


@inline
def label_below(grid, p, k, right, lag):
    """Labels of the neighbours (1, right) of the eight pixels at step k; outside the image anything."""
    first = get(grid.chosen, 0)
    if p < grid.strips - 1:
        receiver = (p + 1) * grid.steps + k + right - (LANES - 1) * lag
        first = get(grid.chosen, (receiver + lag + 1) * LANES)
    return shift_down(load(grid.chosen, (p * grid.steps + k + right + lag + lag + 1) * LANES), first)


@inline
def _pair(s, other, weight, truncation, quadratic):
    """weight * cost of the difference between label s and eight labels."""
    d = absolute(s - other)
    if quadratic:
        d = d * d
    return weight * minimum(d, truncation)


@inline
def _round(grid, p, k, forward, energies, eight):
    """Label eight pixels, given the labels chosen before and the messages of the other neighbours."""
    S, m, across = grid.labels, grid.messages, grid.across
    directions, lag = (4, 2) if eight else (2, 1)
    node, size, side = p * grid.steps + k, directions * LANES, directions - 1
    cell, fall = S * size, S * side
    here = (node + lag + 1) * cell
    into, out = (p * grid.span + (LANES - 1) * lag + k) * fall, ((p + 1) * grid.span + k) * fall
    place = (get(grid.border, p) + k + lag + 1) * directions * LANES
    if forward:  # chosen before: the left neighbour, and those above
        x_a = load(grid.chosen, (node + lag) * LANES)
        x_b = label_above(grid, p, k, 0, lag)
        w_a = cast(load(grid.weight, place - directions * LANES), m)
        w_b = cast(weight_above(grid, p, k, 1, 0, eight), m)
    else:
        x_a = load(grid.chosen, (node + lag + 2) * LANES)
        x_b = label_below(grid, p, k, 0, lag)
        w_a = cast(load(grid.weight, place), m)
        w_b = cast(load(grid.weight, place + LANES), m)
    x_c, x_d, w_c, w_d = x_a, x_a, w_a, w_a
    if eight:
        if forward:
            x_c, x_d = label_above(grid, p, k, -1, lag), label_above(grid, p, k, 1, lag)
            w_c = cast(weight_above(grid, p, k, 2, -1, eight), m)
            w_d = cast(weight_above(grid, p, k, 3, 1, eight), m)
        else:
            x_c, x_d = label_below(grid, p, k, -1, lag), label_below(grid, p, k, 1, lag)
            w_c = cast(load(grid.weight, place + 2 * LANES), m)
            w_d = cast(load(grid.weight, place + 3 * LANES), m)
    truncation = splat(get(grid.profile, 0))
    best = splat(get(grid.numbers, S))
    x = splat(get(grid.numbers, 0))
    paid = x
    for s in range(S):
        o = s * size
        if forward:
            rest = load(m, here + o) + below(m, here + o + LANES, across, out + s * side)
            if eight:
                rest = rest + below(m, here + o + 2 * LANES, across, out + s * side + 1)
                rest = rest + below(m, here + o + 3 * LANES, across, out + s * side + 2)
        else:
            rest = load(m, here - cell + o) + above(m, here - lag * cell + o + LANES, across, into + s * side)
            if eight:
                rest = rest + above(m, here - cell + o + 2 * LANES, across, into + fall + s * side + 1)
                rest = rest + above(m, here - 3 * cell + o + 3 * LANES, across, into - fall + s * side + 2)
        label = splat(get(grid.numbers, s))
        cost = load_as(grid.unary, (node * S + s) * LANES, m) + _pair(label, x_a, w_a, truncation, grid.quadratic)
        cost = cost + _pair(label, x_b, w_b, truncation, grid.quadratic)
        if eight:
            cost = cost + _pair(label, x_c, w_c, truncation, grid.quadratic)
            cost = cost + _pair(label, x_d, w_d, truncation, grid.quadratic)
        rest = rest + cost
        x = choose_less(rest, best, label, x)
        paid = choose_less(rest, best, cost, paid)
        best = minimum(rest, best)
    store(grid.chosen, (node + lag + 1) * LANES, x)
    store(energies, p * LANES, load(energies, p * LANES) + cast(paid, energies))


@inline
def _send_down(grid, h, at, window, lows, caps, rises, here, out, eight):
    """Read the messages to later neighbours off h; lane 7's to the row below go to across[out:]."""
    m, across, size, side = grid.messages, grid.across, (4 if eight else 2) * LANES, 3 if eight else 1
    for t in range(grid.labels):
        from_, to, place = at + t * size, here + t * size, out + t * side
        store(m, to, entry(h, from_, window, rises, 0, size, lows[0], caps[0]))
        v = entry(h, from_ + LANES, window, rises, LANES, size, lows[1], caps[1])
        store(m, to + LANES, v)
        put(across, place, lane(v, LANES - 1))
        if eight:
            v = entry(h, from_ + 2 * LANES, window, rises, 2 * LANES, size, lows[2], caps[2])
            store(m, to + 2 * LANES, v)
            put(across, place + 1, lane(v, LANES - 1))
            v = entry(h, from_ + 3 * LANES, window, rises, 3 * LANES, size, lows[3], caps[3])
            store(m, to + 3 * LANES, v)
            put(across, place + 2, lane(v, LANES - 1))


@inline
def _send_up(grid, h, at, window, lows, caps, rises, here, into, eight):
    """The same to earlier neighbours; lane 0's to the row above go to ``across``."""
    m, across, zero = grid.messages, grid.across, get(grid.numbers, 0)
    size, side, lag = (4 * LANES, 3, 2) if eight else (2 * LANES, 1, 1)
    cell, fall = grid.labels * size, grid.labels * side
    for t in range(grid.labels):
        from_, to, place = at + t * size, here + t * size, into + t * side
        store(m, to - cell, entry(h, from_, window, rises, 0, size, lows[0], caps[0]))
        v = entry(h, from_ + LANES, window, rises, LANES, size, lows[1], caps[1])
        store(m, to - lag * cell + LANES, shift_down(v, zero))
        put(across, place, lane(v, 0))
        if eight:
            v = entry(h, from_ + 2 * LANES, window, rises, 2 * LANES, size, lows[2], caps[2])
            store(m, to - cell + 2 * LANES, shift_down(v, zero))
            put(across, place + fall + 1, lane(v, 0))
            v = entry(h, from_ + 3 * LANES, window, rises, 3 * LANES, size, lows[3], caps[3])
            store(m, to - 3 * cell + 3 * LANES, shift_down(v, zero))
            put(across, place - fall + 2, lane(v, 0))


@inline
def _visit(grid, p, k, h, rises, forward, eight):
    """The eight pixels at step k of strip p: gather all messages and send to the later or to the earlier neighbours."""
    S, m, across, window = grid.labels, grid.messages, grid.across, grid.window
    size, side, lag = (4 * LANES, 3, 2) if eight else (2 * LANES, 1, 1)
    cell, fall, pad, turn = S * size, S * side, max(window, 0) * size, 1 if forward else -1
    node = p * grid.steps + k
    here = (node + lag + 1) * cell
    into, out = (p * grid.span + (LANES - 1) * lag + k) * fall, ((p + 1) * grid.span + k) * fall
    soon = here + (AHEAD if forward else -AHEAD - 1) * cell
    at = get(grid.border, p) + k
    gamma = load(grid.gamma, at * LANES)
    low_a = splat(get(grid.numbers, S))
    low_b, low_c, low_d = low_a, low_a, low_a
    for s in range(S):
        o, i = s * size, s * side
        prefetch(grid.unary, (node * S + s) * LANES + turn * AHEAD * S * LANES)
        prefetch(m, soon + o)
        prefetch(m, soon + o + size // 2)
        # of the later neighbours: to the right, below, below to the left and to the right; then of the earlier ones
        on_a, on_b = load(m, here + o), below(m, here + o + LANES, across, out + i)
        up_a, up_b = load(m, here - cell + o), above(m, here - lag * cell + o + LANES, across, into + i)
        old_a, old_b, new_a, new_b = (on_a, on_b, up_a, up_b) if forward else (up_a, up_b, on_a, on_b)
        total = load_as(grid.unary, (node * S + s) * LANES, m) + old_a + old_b
        old_c, old_d = old_a, old_b
        if eight:
            on_c = below(m, here + o + 2 * LANES, across, out + i + 1)
            on_d = below(m, here + o + 3 * LANES, across, out + i + 2)
            up_c = above(m, here - cell + o + 2 * LANES, across, into + fall + i + 1)
            up_d = above(m, here - 3 * cell + o + 3 * LANES, across, into - fall + i + 2)
            old_c, old_d, new_c, new_d = (on_c, on_d, up_c, up_d) if forward else (up_c, up_d, on_c, on_d)
            total = total + old_c + old_d + new_d + new_b + new_c + new_a  # the last two come from the step before
        else:
            total = total + new_a + new_b
        h_a, h_b = gamma * total - old_a, gamma * total - old_b
        low_a, low_b = minimum(low_a, h_a), minimum(low_b, h_b)
        store(h, pad + o, h_a)
        store(h, pad + o + LANES, h_b)
        if eight:
            h_c, h_d = gamma * total - old_c, gamma * total - old_d
            low_c, low_d = minimum(low_c, h_c), minimum(low_d, h_d)
            store(h, pad + o + 2 * LANES, h_c)
            store(h, pad + o + 3 * LANES, h_d)
    if forward:
        place = (at + lag + 1) * size
        w_a, w_b = cast(load(grid.weight, place), m), cast(load(grid.weight, place + LANES), m)
        w_c, w_d = w_a, w_b
        if eight:
            w_c = cast(load(grid.weight, place + 2 * LANES), m)
            w_d = cast(load(grid.weight, place + 3 * LANES), m)
    else:
        w_a, w_b = cast(load(grid.weight, (at + lag) * size), m), cast(weight_above(grid, p, k, 1, 0, eight), m)
        w_c, w_d = w_a, w_b
        if eight:
            w_c = cast(weight_above(grid, p, k, 2, -1, eight), m)
            w_d = cast(weight_above(grid, p, k, 3, 1, eight), m)
    limit = splat(get(grid.profile, 0))
    lows = (low_a, low_b, low_c, low_d)
    caps = (low_a + w_a * limit, low_b + w_b * limit, low_c + w_c * limit, low_d + w_d * limit)
    prepare(h, pad, S, window, grid.profile, w_a, w_b, w_c, w_d, rises, eight)
    if forward:
        if window > 0:
            _send_down(grid, h, pad, window, lows, caps, rises, here, out, eight)
        else:
            _send_down(grid, h, pad, 0, lows, caps, rises, here, out, eight)
    elif window > 0:
        _send_up(grid, h, pad, window, lows, caps, rises, here, into, eight)
    else:
        _send_up(grid, h, pad, 0, lows, caps, rises, here, into, eight)


@compiled(_nrt=False, fastmath=FAST)
def forward_four(grid, p, first, last, rounding, energies, h, rises):
    """Steps first, ..., last - 1 of strip p, sending to the right and down."""
    for k in range(first, last):
        if rounding:
            _round(grid, p, k, True, energies, False)
        _visit(grid, p, k, h, rises, True, False)


@compiled(_nrt=False, fastmath=FAST)
def backward_four(grid, p, first, last, rounding, energies, h, rises):
    """Steps last - 1, ..., first of strip p, sending to the left and up."""
    for k in range(last - 1, first - 1, -1):
        if rounding:
            _round(grid, p, k, False, energies, False)
        _visit(grid, p, k, h, rises, False, False)


@compiled(_nrt=False, fastmath=FAST)
def forward_eight(grid, p, first, last, rounding, energies, h, rises):
    """Steps first, ..., last - 1 of strip p, sending to the right and down."""
    for k in range(first, last):
        if rounding:
            _round(grid, p, k, True, energies, True)
        _visit(grid, p, k, h, rises, True, True)


@compiled(_nrt=False, fastmath=FAST)
def backward_eight(grid, p, first, last, rounding, energies, h, rises):
    """Steps last - 1, ..., first of strip p, sending to the left and up."""
    for k in range(last - 1, first - 1, -1):
        if rounding:
            _round(grid, p, k, False, energies, True)
        _visit(grid, p, k, h, rises, False, True)


@compiled
def _scratch(grid, directions):
    pad = max(grid.window, 0)
    h = np.full(directions * (grid.labels + 2 * pad) * LANES, grid.numbers[grid.labels])
    return h, np.zeros((pad + 1) * directions * LANES, h.dtype)


@compiled
def sweep_four(grid, forward, rounding, energies, thread, threads, progress):
    """This thread's share of one pass; ``progress`` (zeros) has one counter per strip, a cache line apart."""
    h, rises = _scratch(grid, 2)
    for turn in range(thread, grid.strips, threads):
        p = turn if forward else grid.strips - 1 - turn
        before = p - 1 if forward else p + 1
        for done in range(0, grid.steps, CHUNK):
            end = min(done + CHUNK, grid.steps)
            if threads > 1 and turn > 0 and not wait_for(progress, before * LANES, min(end + LANES - 1, grid.steps)):
                return
            if forward:
                forward_four(grid, p, done, end, rounding, energies, h, rises)
            else:
                backward_four(grid, p, grid.steps - end, grid.steps - done, rounding, energies, h, rises)
            publish(progress, p * LANES, end)


@compiled
def sweep_eight(grid, forward, rounding, energies, thread, threads, progress):
    """The same with eight neighbours: lane 7 of the strip before has to be one column beyond lane 0."""
    h, rises = _scratch(grid, 4)
    for turn in range(thread, grid.strips, threads):
        p = turn if forward else grid.strips - 1 - turn
        before = p - 1 if forward else p + 1
        for done in range(0, grid.steps, CHUNK):
            end = min(done + CHUNK, grid.steps)
            if (
                threads > 1
                and turn > 0
                and not wait_for(progress, before * LANES, min(end + 2 * LANES - 1, grid.steps))
            ):
                return
            if forward:
                forward_eight(grid, p, done, end, rounding, energies, h, rises)
            else:
                backward_eight(grid, p, grid.steps - end, grid.steps - done, rounding, energies, h, rises)
            publish(progress, p * LANES, end)
