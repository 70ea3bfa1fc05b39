"""Expansion moves with duals that are kept: the engine of `expansion` and `fastpd` (algorithms.md §1.14, §1.15).

A move on label c lets every variable switch to c or keep its label; the best choice is a minimum cut.  Each edge (u, v)
has a dual y_uv(a) = -y_vu(a) per label, and each variable the heights h_p(a) = theta_p(a) + sum_q y_pq(a).  As long as

    y_uv(x_u) + y_vu(x_v) = theta_uv(x_u, x_v)   on every edge,                                            (invariant)

the energy is the sum of the heights of the current labels.  In the move on c a variable has the terminal capacity
h_p(x_p) - h_p(c) and an edge the residual capacities

    u -> v:  theta(c, x_v) - y_uv(c) - y_vu(x_v)         v -> u:  theta(x_u, c) + y_uv(c) - y_uv(x_u),

which is the cut of an ordinary expansion, reparametrised by the flow that label c left behind the last time.  So flow is
reused: from the second sweep on there is little left to push.  The sum of the two capacities is negative where the
table violates the triangle inequality for (x_u, c, x_v); the edge then gets no arcs and the cost of switching v alone
is overestimated by as much (safe truncation: no move can raise the energy), and the dual is repaired after the move.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from numba import njit

from tightmap.graphcut.maxflow import Trees, new_trees, plant, push_to_neighbours, run
from tightmap.graphcut.pairwise import PairModel, pair


@njit(cache=True, nogil=True)
def _open_move(c, m, cards, x, hx, hc, yc, yu, yv, cap, term):
    """Capacities of the move on c; duals of label c that changes elsewhere made infeasible are shifted back first."""
    zero = hx[0] - hx[0]
    cut = 0
    for e in range(len(m.tail)):
        u = m.tail[e]
        v = m.head[e]
        has_u = cards[u] > c
        has_v = cards[v] > c
        there = zero
        back = zero
        if x[u] != c and x[v] != c and (has_u or has_v):
            if has_u and has_v:
                there = pair(m, e, c, x[v]) - yc[e] - yv[e]
                back = pair(m, e, x[u], c) + yc[e] - yu[e]
                if there < 0 or back < 0:
                    total = there + back
                    shift = there if there < 0 or total < 0 else -back
                    yc[e] += shift
                    hc[u] += shift
                    hc[v] -= shift
                    there -= shift
                    back += shift
                    if back < 0:
                        back = zero
                        cut += 1
            elif has_u:  # v cannot follow: the edge is a unary cost of u, and its dual says it exactly
                shift = pair(m, e, c, x[v]) - yc[e] - yv[e]
                yc[e] += shift
                hc[u] += shift
            else:
                shift = pair(m, e, x[u], c) + yc[e] - yu[e]
                yc[e] -= shift
                hc[v] += shift
        cap[m.forward[e]] = there
        cap[m.backward[e]] = back
    hope = False
    for p in range(len(x)):
        term[p] = hx[p] - hc[p] if cards[p] > c else zero
        hope |= term[p] > 0
    return hope, cut


@njit(cache=True, nogil=True)
def _close_move(c, m, cards, x, hx, hc, yc, yu, yv, cap, term, side, least):
    """Put the flow into the duals and switch the variables with side >= least; returns how many switched."""
    changed = 0
    for p in range(len(x)):
        if cards[p] > c and x[p] != c:
            hc[p] = hx[p] - term[p]
            changed += side[p] >= least
    for e in range(len(m.tail)):
        u = m.tail[e]
        v = m.head[e]
        if x[u] == c or x[v] == c:
            # the end that is at c stays; the other may join it
            if x[u] == c and x[v] != c and cards[v] > c and side[v] >= least:
                yv[e] = -yc[e]
            elif x[v] == c and x[u] != c and cards[u] > c and side[u] >= least:
                yu[e] = yc[e]
            continue
        has_u = cards[u] > c
        has_v = cards[v] > c
        if has_u and has_v:
            yc[e] = pair(m, e, c, x[v]) - yv[e] - cap[m.forward[e]]
            if side[v] >= least and not side[u] >= least:
                # exact unless the arc was truncated: then v alone is cheaper than the cut believed
                wrong = pair(m, e, x[u], c) + yc[e] - yu[e]
                if wrong < 0:
                    yc[e] -= wrong
                    hc[u] -= wrong
                    hc[v] += wrong
        if has_u and side[u] >= least:
            yu[e] = yc[e]
        if has_v and side[v] >= least:
            yv[e] = -yc[e]
    if changed > 0:
        for p in range(len(x)):
            if cards[p] > c and x[p] != c and side[p] >= least:
                x[p] = c
                hx[p] = hc[p]
    return changed


@njit(cache=True, nogil=True)
def _initial_duals(m, x, yu, yv):
    """Split the cost of every edge between its ends, so that the invariant holds."""
    for e in range(len(m.tail)):
        v = pair(m, e, x[m.tail[e]], x[m.head[e]])
        yu[e] = v
        yv[e] = v - v


@njit(cache=True, nogil=True)
def _spread_duals(m, cards, x, y, first, step, h, start, label_step, yu, yv):
    """y and h from the duals of the current labels: y_uv(x_u) = yu, y_vu(x_v) = yv, everything else 0."""
    for e in range(len(m.tail)):
        u = m.tail[e]
        v = m.head[e]
        a = np.int64(x[u])
        b = np.int64(x[v])
        y[first[e] + step * a] += yu[e]
        h[start[u] + label_step * a] += yu[e]
        if cards[v] > a:
            h[start[v] + label_step * a] -= yu[e]
        if a == b:
            continue
        y[first[e] + step * b] -= yv[e]
        h[start[v] + label_step * b] += yv[e]
        if cards[u] > b:
            h[start[u] + label_step * b] -= yv[e]


@njit(cache=True, nogil=True)
def _gather(c, flat, first, size, out):
    for i in range(len(first)):
        if size[i] > c:
            out[i] = flat[first[i] + c]


@njit(cache=True, nogil=True)
def _scatter(c, flat, first, size, values):
    for i in range(len(first)):
        if size[i] > c:
            flat[first[i] + c] = values[i]


@njit(cache=True, nogil=True)
def _move(c, net, m, cards, x, hx, hc, yc, yu, yv, cap, term, trees, largest):
    hope, cut = _open_move(c, m, cards, x, hx, hc, yc, yu, yv, cap, term)
    if not hope:
        return 0, cut
    zero = hx[0] - hx[0]
    push_to_neighbours(net, cap, term, zero)
    plant(trees, term, zero, largest)
    run(net, cap, term, zero, trees)
    gain = False
    for p in range(len(x)):
        if term[p] > 0:
            gain = True
            break
    least = 1
    if largest and gain:
        least = 0
    changed = _close_move(c, m, cards, x, hx, hc, yc, yu, yv, cap, term, trees.side, least)
    return changed, cut


@dataclass(eq=False)
class Expansion:
    """Labels, duals and work space of expansion moves on one pairwise model."""

    model: PairModel
    labels: npt.NDArray[np.int32]  # (nodes,)
    largest: bool  # switch the largest optimal set instead of the smallest
    trees: Trees = field(init=False)
    truncated: int = 0  # arcs cut so far because a table is not a metric
    clock: int = 0  # moves that changed something
    tried: npt.NDArray[np.int64] = field(init=False)  # clock at the last move on every label

    def __post_init__(self) -> None:
        m, model = self.model.edges, self.model
        dtype = model.unary.dtype
        nodes, edges = model.nodes, len(m.tail)
        labels = int(model.cards.max(initial=1))
        sizes = np.maximum(model.cards[m.tail], model.cards[m.head]).astype(np.int64)
        self.uniform = bool((model.cards[model.node] == labels).all())
        if self.uniform:  # label-major planes
            self.start, self.label_step = np.arange(nodes), nodes
            self.first, self.edge_step = np.arange(edges), edges
            self.h = np.zeros(labels * nodes, dtype)
            self.h.reshape(labels, nodes)[:, model.node] = model.unary.reshape(-1, labels).T
            self.y = np.zeros(labels * edges, dtype)
        else:
            self.start, self.label_step = np.concatenate(([0], np.cumsum(model.cards)))[:-1].astype(np.int64), 1
            self.first, self.edge_step = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int64), 1
            self.h = np.ascontiguousarray(model.unary).copy()  # dead nodes have no labels, so the layout is the same
            self.y = np.zeros(int(sizes.sum()), dtype)
            self.sizes = sizes.astype(np.int32)
            self.hc, self.yc = np.zeros(nodes, dtype), np.zeros(edges, dtype)
        self.yu, self.yv = np.zeros(edges, dtype), np.zeros(edges, dtype)
        _initial_duals(m, self.labels, self.yu, self.yv)
        _spread_duals(
            m, model.cards, self.labels, self.y, self.first, self.edge_step, self.h, self.start, self.label_step,
            self.yu, self.yv,
        )  # fmt: skip
        self.hx = np.zeros(nodes, dtype)
        self.hx[model.node] = self.h[self.start[model.node] + self.label_step * self.labels[model.node]]
        arcs = nodes * model.net.degree if hasattr(model.net, "degree") else len(model.net.heads)
        self.cap, self.term = np.zeros(arcs, dtype), np.zeros(nodes, dtype)
        self.trees = new_trees(nodes, model.net)
        self.tried = np.full(labels, -1, np.int64)

    def move(self, c: int) -> int:
        """Best expansion of label c; returns how many variables took it."""
        if self.tried[c] == self.clock:
            return 0
        model = self.model
        if self.uniform:
            nodes, edges = model.nodes, len(self.yu)
            hc, yc = self.h[c * nodes : (c + 1) * nodes], self.y[c * edges : (c + 1) * edges]
        else:
            hc, yc = self.hc, self.yc
            _gather(c, self.h, self.start, model.cards, hc)
            _gather(c, self.y, self.first, self.sizes, yc)
        changed, cut = _move(
            c, model.net, model.edges, model.cards, self.labels, self.hx, hc, yc, self.yu, self.yv,
            self.cap, self.term, self.trees, self.largest,
        )  # fmt: skip
        if not self.uniform:
            _scatter(c, self.h, self.start, model.cards, hc)
            _scatter(c, self.y, self.first, self.sizes, yc)
        self.truncated += cut
        self.clock += changed > 0
        self.tried[c] = self.clock
        return int(changed)

    @property
    def cost(self) -> float:
        """Energy (without the graph's constant) by the invariant."""
        return float(self.hx[self.model.node].sum()) * self.model.scale
