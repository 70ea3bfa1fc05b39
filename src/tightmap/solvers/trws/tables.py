"""TRW-S sweeps on any graph of pairs that have tables, eight labels at a time (streams.py has the layout).

The passes are those of general.py: at node i

    total = theta_i + sum of its slots,    h = gamma_i total - slot,    slot <- min_t [h(t) + theta_ij(t, .)] - delta,

with one row of the table for each label t, and lanes along the labels of the other end.  Nodes of at most eight labels
keep all of it in registers (``narrow``); the others go through blocks of eight labels (``wide``).  A Potts edge of
weight w has no table: its message is min(h, min h + w).

``size`` adds up what rounding can amount to, as in general.py; sums of absolute values are taken label by label.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np

from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.runtime.simd import (
    LANES,
    absolute,
    choose_less,
    get,
    keep,
    lane_min,
    load,
    minimum,
    pointer,
    prefetch,
    put,
    splat,
    store,
)  # fmt: skip
from tightmap.runtime.sync import publish, wait_for
from tightmap.solvers.trws.layout import CHUNK

AHEAD = 4  # visits that messages are asked for in advance
FAR = 1 << 20  # numbers of all messages from which on that pays: below, asking costs a tenth, above, it saves as much
FAST = {"contract", "nsz"}


def _make(NARROW: bool) -> Any:
    """The pass for nodes of at most eight labels, or for any number of them."""

    @compiled(fastmath=FAST)
    def sweep(streams, sweeper, towards, labels, rounding, sums, left, thread, threads, progress):
        """One thread's share of a pass, forward (towards = 1) or backward (0); see general.half_sweep."""
        until = end_of(left)
        spent = 0.0
        hurried = False
        h_array, total_array, out_array = np.empty(streams.most), np.empty(streams.most), np.empty(streams.most)
        lane_array = np.arange(LANES).astype(np.float64)
        h, total_at, out = pointer(h_array), pointer(total_array), pointer(out_array)
        lanes = load(lane_array, 0)
        messages, unary, unary_at = pointer(sweeper.messages), pointer(streams.unary), pointer(streams.unary_at)
        first, slot, other = pointer(streams.first), pointer(streams.slot), pointer(streams.other)
        wide, weight, base = pointer(streams.wide), pointer(streams.weight), pointer(streams.base[towards])
        costs = pointer(streams.costs[1]) if towards == 1 else pointer(streams.costs[0])
        largests, cards, order = pointer(streams.largest), pointer(streams.cards), pointer(sweeper.order)
        gammas, earliers, x = pointer(sweeper.gamma), pointer(sweeper.earlier), pointer(labels)
        need, ahead = pointer(sweeper.need[towards]), sweeper.ahead > 0 and len(sweeper.messages) > FAR
        n = len(sweeper.order)
        zero, never = splat(0.0), splat(np.inf)
        chunks = (n + CHUNK - 1) // CHUNK
        for chunk in range(thread * sweeper.block, chunks):
            b = chunk // sweeper.block
            if b % threads != thread:
                continue
            if threads > 1 and get(need, chunk) > 0 and not wait_for(progress, 8 * (b - 1), get(need, chunk)):
                return
            energy = 0.0
            bound = 0.0
            size = 0.0
            for visit in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                k = visit if towards == 1 else n - 1 - visit
                if ahead and visit + AHEAD < n:
                    j = visit + AHEAD if towards == 1 else n - 1 - visit - AHEAD
                    between = get(first, j) + get(earliers, get(order, j))
                    for q in range(get(first, j), get(first, j + 1)):
                        prefetch(messages, get(slot, q))
                        if rounding and (q < between) == (towards == 1) and get(base, q) >= 0:
                            prefetch(costs, get(base, q) + get(x, get(other, q)) * get(cards, j))
                if spent > LOOK:
                    spent = 0.0
                    hurried = hurried or late(until)
                if hurried:
                    energy = np.inf
                    break
                i = get(order, k)
                c = get(cards, k)
                begin, end = get(first, k), get(first, k + 1)
                middle = begin + get(earliers, i)
                # entries that the pass has been to already, and those that it sends along
                seen, seen_end = (begin, middle) if towards == 1 else (middle, end)
                send, send_end = (middle, end) if towards == 1 else (begin, middle)
                own = get(unary_at, k)
                if rounding:
                    for o in range(0, c, LANES):
                        paid = load(unary, own + o)
                        for q in range(seen, seen_end):
                            at, label = get(base, q), get(x, get(other, q))
                            if at >= 0:
                                paid = paid + load(costs, at + label * c + o)
                            else:
                                here = absolute(lanes - splat(float(label - o)))
                                paid = paid + choose_less(here, splat(0.5), zero, splat(get(weight, q)))
                        store(out, o, paid)
                        for q in range(send, send_end):
                            paid = paid + load(messages, get(slot, q) + o)
                        store(h, o, paid)
                    best = 0
                    for s in range(1, c):
                        if get(h, s) < get(h, best):
                            best = s
                    put(x, i, best)
                    energy += get(out, best)
                gamma = get(gammas, i)
                share = splat(gamma)
                largest = get(largests, k)
                low = np.inf
                spread = 0.0
                total = zero
                for o in range(0, c, LANES):
                    total = load(unary, own + o)
                    sizes = zero
                    for q in range(begin, end):
                        v = load(messages, get(slot, q) + o)
                        total = total + v
                        sizes = sizes + absolute(v)
                    spread = max(spread, -lane_min(zero - sizes))
                    if towards == 0:
                        low = min(low, lane_min(total))
                    total = share * total
                    if not NARROW:
                        store(total_at, o, total)
                largest += spread
                if towards == 0:
                    earlier = get(earliers, i)
                    if earlier * gamma != 1.0:  # the part of the sum that stays at the node
                        bound += (1.0 - gamma * earlier) * low
                    size += 4.0 * (end - begin + 2) * largest + abs(low)
                for q in range(send, send_end):
                    message, d, at = get(slot, q), get(wide, q), get(base, q)
                    spent += 20.0 + c * d
                    if NARROW:
                        mine = total - load(messages, message)
                        inside = splat(float(d))
                        if at >= 0:
                            store(h, 0, mine)
                            best_row = load(costs, at) + splat(get(h, 0))
                            for s in range(1, c):
                                best_row = minimum(load(costs, at + s * d) + splat(get(h, s)), best_row)
                        else:
                            best_row = minimum(mine, splat(lane_min(mine) + get(weight, q)))
                        delta = lane_min(choose_less(lanes, inside, best_row, never))
                        best_row = choose_less(lanes, inside, best_row - splat(delta), zero)
                        store(messages, message, best_row)
                        peak = -lane_min(zero - best_row)
                    else:
                        lowest = never
                        for o in range(0, c, LANES):
                            mine = load(total_at, o) - load(messages, message + o)
                            store(h, o, mine)
                            lowest = minimum(lowest, mine)
                        cap = splat(lane_min(lowest) + get(weight, q))
                        lowest = never
                        for o in range(0, d, LANES):
                            if at >= 0:
                                best_row = load(costs, at + o) + splat(get(h, 0))
                                for s in range(1, c):
                                    best_row = minimum(load(costs, at + s * d + o) + splat(get(h, s)), best_row)
                            elif o < c:
                                best_row = minimum(load(h, o), cap)
                            else:
                                best_row = cap
                            best_row = choose_less(lanes, splat(float(d - o)), best_row, never)
                            lowest = minimum(lowest, best_row)
                            store(out, o, best_row)
                        delta = lane_min(lowest)
                        lowest = zero
                        for o in range(0, d, LANES):
                            best_row = load(out, o) - splat(delta)
                            best_row = choose_less(lanes, splat(float(d - o)), best_row, zero)
                            store(messages, message + o, best_row)
                            lowest = minimum(lowest, zero - best_row)
                        peak = -lane_min(lowest)
                    bound += delta
                    size += (8.0 + 2.0 * c) * (2.0 * largest + abs(delta) + peak)
            sums[chunk, 0] = energy
            sums[chunk, 1] = bound
            sums[chunk, 2] = size
            if threads > 1:
                publish(progress, 8 * b, chunk % sweeper.block + 1)
        keep(h_array)
        keep(total_array)
        keep(out_array)

    return sweep


narrow_sweep, wide_sweep = _make(True), _make(False)
