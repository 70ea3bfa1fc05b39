"""Passes over the sequence of a region graph: SRMP's forward and backward pass, and rounding in both directions.

What a pass reads and writes goes through pointers (simd.pointer): a call with the arrays of a model and of its region
graph takes as long as several messages.  Only messages without a fast form (plan.py) are left to ``kernels.marginal``.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tightmap.factors.difference import difference_minmarg, difference_value
from tightmap.graph.graph import Kind
from tightmap.graph.one_form import one_form
from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, end_of, late
from tightmap.runtime.simd import get, pointer, put
from tightmap.solvers.regions.cluster_kernels import square_in_lanes
from tightmap.solvers.regions.kernels import effort, fill, marginal
from tightmap.solvers.regions.plan import (
    COUNTED,
    DENSE_COST,
    DIFFERENCE,
    FROM_COLUMNS,
    FROM_ROWS,
    GENERAL,
    LANED,
    POTTS_COST,
    POTTS_PAIR,
    PRODUCT,
    SEND_BACKWARD,
    SEND_FORWARD,
    SHARE_BACKWARD,
    SHARE_FORWARD,
    TABLED,
    TRIPLE,
    UNKNOWN,
)
from tightmap.solvers.regions.sends import (
    add,
    least_of,
    send_columns,
    send_product,
    send_rows,
    send_triple,
    subtract,
    take,
    take_potts,
    visit_four,
)

FORWARD, BACKWARD, AHEAD, BACK = 0, 1, 2, 3  # sweep to the end and back; round in either direction
QUADRATIC = int(Kind.QUADRATIC)


class View(NamedTuple):
    """Pointers to what the table of a region is made of."""

    n: Any
    neg: Any
    cost: Any
    stored: Any
    weight: Any
    param: Any
    params: Any
    size: Any
    scope_start: Any
    in_start: Any
    in_edge: Any
    out_start: Any
    target: Any
    at: Any
    map_at: Any
    maps: Any


@lean
def _reparametrised(v, r, skip, table):
    """As kernels.fill, for a region whose costs are at hand."""
    neg, size, where = v.neg, get(v.size, r), get(v.cost, r)
    first = get(v.out_start, r)
    pair = get(v.scope_start, r + 1) - get(v.scope_start, r) == 2
    if where >= 0:
        for x in range(size):
            put(table, x, get(v.stored, where + x))
    elif where == DENSE_COST:
        w, t = get(v.weight, r - v.n), get(v.param, r - v.n)
        for x in range(size):
            put(table, x, w * get(v.params, t + x))
    elif where == POTTS_COST:
        w = get(v.weight, r - v.n)
        c = get(v.size, get(v.target, first + 1))
        for x in range(size):
            put(table, x, w)
        for x in range(0, min(size, c * c), c + 1):
            put(table, x, 0.0)
    else:
        for x in range(size):
            put(table, x, 0.0)
    for k in range(get(v.in_start, r), get(v.in_start, r + 1)):
        a = get(v.at, get(v.in_edge, k))
        for x in range(size):
            put(table, x, get(table, x) - get(neg, a + x))
    if pair:  # a pair sends to its two variables: rows and columns
        c = get(v.size, get(v.target, first + 1))
        if skip != first:
            a = get(v.at, first)
            for s in range(get(v.size, get(v.target, first))):
                u = get(neg, a + s)
                for t in range(s * c, s * c + c):
                    put(table, t, get(table, t) + u)
        if skip != first + 1:
            a = get(v.at, first + 1)
            for s in range(0, size, c):
                for t in range(c):
                    put(table, s + t, get(table, s + t) + get(neg, a + t))
        return
    for e in range(first, get(v.out_start, r + 1)):
        if e != skip:
            a, m = get(v.at, e), get(v.map_at, e)
            for x in range(size):
                put(table, x, get(table, x) + get(neg, a + np.int64(get(v.maps, m + x))))


@lean
def _send_tabled(v, r, e, ny, table, out):
    """As kernels.marginal, for a region with a table whose costs are at hand."""
    _reparametrised(v, r, e, table)
    nx = get(v.size, r)
    m = get(v.map_at, e) + nx
    for y in range(ny):
        put(out, y, get(table, np.int64(get(v.maps, m + y))))
    for j in range(m + ny, m + nx, ny):
        for y in range(ny):
            new, old = get(table, np.int64(get(v.maps, j + y))), get(out, y)
            put(out, y, new if new < old else old)


@one_form
@lean
def sweep(g, d, plan, neg_array, action, label_array, low, begin, end, buffers, left):
    """Positions begin..end of one pass; returns where it is: at the end, or where time was up.

    FORWARD, BACKWARD  messages; a backward pass adds the bound up in low[0]
    AHEAD, BACK        round: label variables in the order of a pass, each the best given those before it.  Regions
                       with labelled variables send restricted messages; ``neg_array`` is a copy that is overwritten
                       (Plan.copied), labels are -1 where nothing is chosen yet
    """
    rounding = action == AHEAD or action == BACK
    forward = action == FORWARD or action == AHEAD
    sending = SEND_FORWARD if forward else SEND_BACKWARD
    sharing = SHARE_FORWARD if forward else SHARE_BACKWARD
    n = len(g.cards)
    last = len(d.sequence) - 1
    own_params = len(g.params)
    neg, labels, params, stored = pointer(neg_array), pointer(label_array), pointer(g.params), pointer(plan.stored)
    theta, out, table = pointer(buffers.theta), pointer(buffers.vector), pointer(buffers.table)
    share = pointer(buffers.share)
    sequence, sizes = pointer(d.sequence), pointer(d.size)
    unary, offset, kinds, limits = pointer(g.unary), pointer(g.offset), pointer(g.kind), pointer(g.param)
    in_start, in_edge, out_start = pointer(d.in_start), pointer(d.in_edge), pointer(d.out_start)
    sources, targets = pointer(d.source), pointer(d.target)
    scope_start, scope = pointer(d.scope_start), pointer(d.scope)
    forms, acts, owns, others = pointer(plan.form), pointer(plan.acts), pointer(plan.own), pointer(plan.other)
    facing, weights, param = pointer(plan.labels), pointer(plan.weight), pointer(plan.param)
    triples, squares, products = pointer(plan.triples), pointer(plan.squares), pointer(plan.products)
    four = pointer(plan.four)
    cost, counts = pointer(plan.cost), pointer(d.region_counted)
    parts = pointer(d.weight_forward) if forward else pointer(d.weight_backward)
    view = View(
        n, neg, cost, stored, pointer(g.weight), limits, params, sizes, scope_start,
        in_start, in_edge, out_start, targets, pointer(d.at), pointer(d.map_at), pointer(d.maps),
    )  # fmt: skip
    until = end_of(left)
    spent = 0.0
    bound = low[0]
    for q in range(begin, end):
        if spent > LOOK:
            spent = 0.0
            if late(until):
                low[0] = bound
                return q
        b = np.int64(get(sequence, q if forward else last - q))
        size = get(sizes, b)
        remaining, part = get(parts, b), 1.0 / get(parts, b)
        begin_in, end_in = get(in_start, b), get(in_start, b + 1)
        spent += 10.0 + size * (end_in - begin_in)
        if b < n:
            o = get(offset, b)
            if get(four, b) and not rounding:
                if forward:
                    remaining = -1.0
                messages = (neg, acts, owns, others, weights)
                bound = visit_four(unary, o, messages, begin_in, end_in, sending, sharing, part, remaining, bound)
                continue
            for s in range(size):
                put(theta, s, get(unary, o + s))
        for k in range(begin_in, end_in):
            act, form, a = np.int64(get(acts, k)), np.int64(get(forms, k)), get(owns, k)
            at, c, w, t = get(others, k), np.int64(get(facing, k)), get(weights, k), get(param, k)
            if rounding:
                e = get(in_edge, k)
                r = np.int64(get(sources, e))
                if GENERAL < form < TRIPLE:  # a pair, which is not read again: its message is not written down
                    x = get(labels, get(targets, 2 * get(out_start, r) + 1 - e))
                    if x < 0:
                        subtract(theta, neg, a, size)
                        continue
                    h = get(neg, at + x)
                    for s in range(size):
                        if form == POTTS_PAIR:
                            v = h if s == x else h + w
                        elif form == FROM_ROWS:
                            v = w * get(params, t + s * c + x) + h
                        elif form == FROM_COLUMNS:
                            v = w * get(params, t + x * size + s) + h
                        else:
                            v = w * difference_value(get(kinds, r - n) == QUADRATIC, get(params, t), s, x) + h
                        put(out, s, v)
                    least = least_of(out, 0, size)
                    for s in range(size):
                        put(theta, s, get(theta, s) - (least - get(out, s)))
                    continue
                needed = False
                for p in range(get(scope_start, r), get(scope_start, r + 1)):
                    needed |= get(labels, get(scope, p)) >= 0
                if not needed:
                    subtract(theta, neg, a, size)
                    continue
            elif act & sending == 0:
                remaining -= act // SHARE_BACKWARD % 2
                subtract(theta, neg, a, size)
                continue
            else:
                remaining -= act // SHARE_BACKWARD % 2
            if form == POTTS_PAIR:
                least = take_potts(neg, at, c, w, a, theta, size, out)
                if act & COUNTED:
                    bound += least
                continue
            if form == FROM_ROWS:
                send_rows(params, t, w, neg, at, c, size, out)
                spent += size * c
            elif form == FROM_COLUMNS:
                send_columns(params, t, w, neg, at, c, size, out)
                spent += size * c
            elif form == DIFFERENCE:
                quadratic = get(kinds, get(sources, get(in_edge, k)) - n) == QUADRATIC
                difference_minmarg(size, c, w, quadratic, get(params, t), neg_array, at, buffers.vector, buffers.work)
                spent += 4 * c
            elif form == TRIPLE:
                row = 8 * at
                first, second = get(triples, row), get(triples, row + 1)
                begin_a, end_a, begin_b, end_b = 0, get(triples, row + 2), 0, get(triples, row + 3)
                spent += size * end_a * end_b
                if rounding:
                    e = get(in_edge, k)
                    place = e - get(out_start, get(sources, e))
                    inner = 0 if place == 2 else 2
                    x = get(labels, get(targets, e - place + inner))
                    if x >= 0:
                        begin_a, end_a = x, x + 1
                    x = get(labels, get(targets, e - place + 3 - place - inner))
                    if x >= 0:
                        begin_b, end_b = x, x + 1
                step, step_a, step_b = get(triples, row + 4), get(triples, row + 5), get(triples, row + 6)
                tables = params if t < own_params else stored
                send_triple(
                    tables, t if t < own_params else t - own_params, w, neg, first, second,
                    begin_a, end_a, begin_b, end_b, step, step_a, step_b, size, out,
                )  # fmt: skip
            elif form == TABLED and not rounding:
                e = get(in_edge, k)
                r = np.int64(get(sources, e))
                _send_tabled(view, r, e, size, table, out)
                spent += get(sizes, r) * (get(out_start, r + 1) - get(out_start, r))
            elif form == LANED and not rounding:
                row = 10 * at
                nc, nw = get(squares, row + 8), get(squares, row + 9)
                square_in_lanes(
                    neg, get(squares, row), get(squares, row + 1), get(squares, row + 2), get(squares, row + 3),
                    get(squares, row + 4), get(squares, row + 5), get(squares, row + 6), get(squares, row + 7),
                    nc, nw, out, table,
                )  # fmt: skip
                spent += size * nc * nw
            elif form == PRODUCT and not rounding:
                row = 9 * at
                nb, nz = get(products, row + 7), get(products, row + 8)
                send_product(
                    neg, get(products, row), get(products, row + 1), get(products, row + 2), get(products, row + 3),
                    get(products, row + 4), get(products, row + 5), get(products, row + 6), nb, nz, out,
                )  # fmt: skip
                spent += size * nz
            else:
                e = get(in_edge, k)
                spent += effort(g, d, d.source[e])
                marginal(g, d, e, neg_array, label_array, rounding, buffers)
            if rounding:  # entries that disagree with the labels are never read again
                least = least_of(out, 0, size)
                for s in range(size):
                    v = get(out, s)
                    v = least - v if v < np.inf else 0.0
                    put(neg, a + s, v)
                    put(theta, s, get(theta, s) - v)
            else:
                least = take(out, neg, a, theta, size)
                if act & COUNTED:
                    bound += least
        if b >= n and get(cost, b) == UNKNOWN:
            fill(g, d, b, neg_array, -1, buffers.theta)
        elif b >= n:
            _reparametrised(view, b, -1, theta)
        if rounding:
            if b < n:
                best = 0
                for s in range(1, size):
                    if get(theta, s) < get(theta, best):
                        best = s
                put(labels, b, best)
            continue
        if not forward and get(counts, b):
            bound += remaining * part * least_of(theta, 0, size)
        for s in range(size):
            put(share, s, part * get(theta, s))
        for k in range(begin_in, end_in):
            if np.int64(get(acts, k)) & sharing:
                add(neg, get(owns, k), share, size)
    low[0] = bound
    return end
