"""Variables whose label is decided by their own costs, taken out of the cuts beforehand.

Variable p is settled at label a when no labelling of its neighbours can make another label as good,

    theta_p(b) - theta_p(a) > sum_q max_s [theta_pq(a, s) - theta_pq(b, s)]    for every b != a.

Its edges then become unary costs of the neighbours, which may settle those in turn.  Switching p to a alone lowers the
energy of every labelling that has another label there, so every labelling that expansion moves stop at has label a:
nothing they can reach is lost, only work.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from tightmap.graphcut.network import degree, edge, head
from tightmap.graphcut.pairwise import DENSE, LINEAR, POTTS, PairModel, pair


@njit(cache=True, nogil=True)
def _label(net, p, cards, m, start, unary, settled):
    """The label at which p is settled, or -1."""
    first = start[p]
    best = 0
    for b in range(1, cards[p]):
        if unary[first + b] < unary[first + best]:
            best = b
    zero = unary[0] - unary[0]
    flat = zero  # what Potts edges and truncated squares can hold against any label
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    linear = False
    for k in range(degree(net, p)):
        q = head(net, p, k)
        if cards[q] == 0 or settled[q] >= 0:
            continue
        e = edge(net, p, k)
        if kind[e] == DENSE or weight[e] < 0:
            return -1
        if kind[e] == LINEAR:
            linear = True
        elif kind[e] == POTTS:
            flat += weight[e]
        else:
            flat += ((weight[e] * tables[base[e]]) + magic[0]) - magic[0]
    for b in range(cards[p]):
        if b != best and unary[first + b] - unary[first + best] <= flat:
            return -1
    if linear:
        for b in range(cards[p]):
            if b == best:
                continue
            against = flat
            for k in range(degree(net, p)):
                q = head(net, p, k)
                if cards[q] > 0 and settled[q] < 0:
                    e = edge(net, p, k)
                    if kind[e] == LINEAR:
                        against += pair(kind, weight, base, stride, tables, magic, e, best, b)
            if unary[first + b] - unary[first + best] <= against:
                return -1
    return best


@njit(cache=True, nogil=True)
def _settle(net, cards, m, start, unary, settled, queue, queued):
    """Settle what can be; unaries take in the edges of settled variables, whose weights become 0.  Returns how many."""
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    found = 0
    count = 0
    for p in range(len(cards) - 1, -1, -1):
        if cards[p] > 0:
            queue[count] = p
            queued[p] = 1
            count += 1
    while count > 0:
        count -= 1
        p = np.int64(queue[count])
        queued[p] = 0
        a = _label(net, p, cards, m, start, unary, settled)
        if a < 0:
            continue
        settled[p] = a
        found += 1
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if cards[q] == 0 or settled[q] >= 0:
                continue
            e = edge(net, p, k)
            if weight[e] == 0:
                continue
            for b in range(cards[q]):
                cost = (
                    pair(kind, weight, base, stride, tables, magic, e, a, b)
                    if p < q
                    else pair(kind, weight, base, stride, tables, magic, e, b, a)
                )
                unary[start[q] + b] += cost
            weight[e] -= weight[e]
            if queued[q] == 0:
                queued[q] = 1
                queue[count] = q
                count += 1
    return found


def settle(model: PairModel) -> PairModel:
    """The model with settled variables as dead nodes; itself when there are none.  Its arrays are changed in place."""
    nodes = model.nodes
    settled = np.full(nodes, -1, np.int32)
    start = np.cumsum(model.cards, dtype=np.int64) - model.cards
    queue, queued = np.empty(nodes, np.int32), np.zeros(nodes, np.uint8)
    if not _settle(model.net, model.cards, model.edges, start, model.unary, settled, queue, queued):
        return model
    return replace(model, cards=np.where(settled >= 0, np.int32(0), model.cards), settled=settled)
