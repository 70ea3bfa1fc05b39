"""Variables whose label is decided by their own costs, taken out of the cuts beforehand.

Variable p is settled at label a when no labelling of its neighbours can make another label as good,

    theta_p(b) - theta_p(a) > sum_q max_s [theta_pq(a, s) - theta_pq(b, s)]    for every b != a.

Its edges then become unary costs of the neighbours, which may settle those in turn.  Switching p to a alone lowers the
energy of every labelling that has another label there, so every labelling that expansion moves stop at has label a:
nothing they can reach is lost, only work.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.factors.pairs import DENSE, LINEAR, POTTS, QUADRATIC
from tightmap.graphcut.network import degree, edge, head
from tightmap.graphcut.pairwise import Edges, PairModel, pair
from tightmap.runtime.compiled import lean


@lean
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
        # how far is the best label ahead, and can the edges catch up?
        first = start[p]
        a = 0
        for b in range(1, cards[p]):
            if unary[first + b] < unary[first + a]:
                a = b
        ahead = unary[first + (1 if a == 0 else 0)]
        for b in range(cards[p]):
            if b != a:
                ahead = min(ahead, unary[first + b])
        ahead -= unary[first + a]
        linear = False
        for k in range(degree(net, p)):
            if ahead <= 0:
                break
            q = head(net, p, k)
            if cards[q] == 0 or settled[q] >= 0:
                continue
            e = edge(net, p, k)
            if kind[e] == DENSE or weight[e] < 0:
                ahead -= ahead
            elif kind[e] == LINEAR:
                linear = True
            elif kind[e] == POTTS:
                ahead -= weight[e]
            else:
                ahead -= ((weight[e] * tables[base[e]]) + magic[0]) - magic[0]
        if ahead <= 0:
            continue
        if linear and not _ahead_of_linear(net, p, a, cards, m, start, unary, settled):
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
                u, v = (a, b) if p < q else (b, a)
                unary[start[q] + b] += pair(kind, weight, base, stride, tables, magic, e, u, v)
            weight[e] -= weight[e]
            if queued[q] == 0:
                queued[q] = 1
                queue[count] = q
                count += 1
    return found


@lean
def _ahead_of_linear(net, p, a, cards, m, start, unary, settled):
    """The same question where truncated linear edges hold more against far labels than against near ones."""
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    for b in range(cards[p]):
        if b == a:
            continue
        ahead = unary[start[p] + b] - unary[start[p] + a]
        for k in range(degree(net, p)):
            q = head(net, p, k)
            if cards[q] == 0 or settled[q] >= 0:
                continue
            e = edge(net, p, k)
            if kind[e] == QUADRATIC:
                ahead -= ((weight[e] * tables[base[e]]) + magic[0]) - magic[0]
            else:
                ahead -= pair(kind, weight, base, stride, tables, magic, e, a, b)
        if ahead <= 0:
            return False
    return True


WORTHWHILE = 0.1  # share of settled variables below which nothing is gained


def without_settled_variables(model: PairModel) -> PairModel:
    """The model with settled variables as dead nodes, or itself when there are few of them."""
    found = _found(model)
    if found is None:
        return model
    edges, unary, settled = found
    cards = np.where(settled >= 0, np.int32(0), model.cards)
    return replace(model, edges=edges, cards=cards, unary=unary, settled=settled)


def with_settled_labels(model: PairModel, labels: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """The labelling where moves on the model without its settled variables would begin."""
    found = _found(model)
    if found is None:
        return labels
    settled = found[2][model.node]
    return np.where(settled >= 0, settled, labels)


def _found(model: PairModel) -> tuple[Edges, npt.NDArray[Any], npt.NDArray[np.int32]] | None:
    """Edges and unaries when the settled variables have been taken out, and their labels; None where they are few."""
    nodes = model.nodes
    weight, unary = model.edges.weight.copy(), model.unary.copy()
    edges = model.edges._replace(weight=weight)
    settled = np.full(nodes, -1, np.int32)
    start = np.cumsum(model.cards, dtype=np.int64) - model.cards
    queue, queued = np.empty(nodes, np.int32), np.zeros(nodes, np.uint8)
    found = _settle(model.net, model.cards, edges, start, unary, settled, queue, queued)
    return None if found < WORTHWHILE * len(model.node) else (edges, unary, settled)
