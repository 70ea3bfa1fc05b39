"""Swap moves: the best exchange of two labels a, b among the variables that have one of them, as a minimum cut.

A member p chooses between a (source side) and b (sink side).  With D_p = cost of b - cost of a, edges to all others
included, its terminal capacity is D_p; an edge between members has the capacities theta(a, b) and theta(b, a) (tables
have zero diagonals here).  Where one of the two is negative, it goes to the terminals,

    B [a, b] + C [b, a]  =  B y_q - B y_p + (B + C) [b, a],        y = 1 for label b,

so the cut is exact as long as B + C >= 0; a pair of labels with an edge that violates it is left to the caller.

Only members are looked at, and a pair is skipped while nothing changed around the variables of its two labels: whoever
changes its label marks the labels it leaves and takes and those of its neighbours.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tightmap.graphcut.maxflow import COUNT, NONE, TERMINAL, ended, new_trees, run
from tightmap.graphcut.network import Grid, arc, degree, edge, head, sister
from tightmap.graphcut.pairwise import PairModel, pair
from tightmap.runtime.compiled import lean
from tightmap.runtime.memory import require
from tightmap.runtime.pace import EVER

KERNEL_WORK = 2_000_000  # members visited before the kernel returns
PAIR_BYTES = 21.0  # while all pairs of labels are listed, per square of the number of labels


@lean
def _network(net, m, cards, start, unary, x, a, b, members, member, cap, term):
    """Members, capacities and terminals of the swap of a and b; returns how many, or -1 where it is no cut."""
    kind, weight, base, stride, tables, magic = m.kind, m.weight, m.base, m.stride, m.tables, m.magic
    count = 0
    for p in range(len(x)):
        if (x[p] == a or x[p] == b) and cards[p] > b:
            members[count] = p
            member[p] = 1
            term[p] = unary[start[p] + b] - unary[start[p] + a]
            count += 1
    zero = term[0] - term[0]
    for i in range(count):
        p = np.int64(members[i])
        for k in range(degree(net, p)):
            q = head(net, p, k)
            there = zero
            back = zero
            if member[q] == 0:
                if cards[q] > 0:
                    e = edge(net, p, k)
                    u, v = (a, x[q]) if p < q else (x[q], a)
                    term[p] -= pair(kind, weight, base, stride, tables, magic, e, u, v)
                    u, v = (b, x[q]) if p < q else (x[q], b)
                    term[p] += pair(kind, weight, base, stride, tables, magic, e, u, v)
            elif q < p:
                continue
            else:
                e = edge(net, p, k)
                there = pair(kind, weight, base, stride, tables, magic, e, a, b)
                back = pair(kind, weight, base, stride, tables, magic, e, b, a)
                if there < 0 or back < 0:
                    if there + back < 0:
                        for j in range(count):
                            member[members[j]] = 0
                        return -1
                    shift = there if there < 0 else -back
                    term[q] += shift
                    term[p] -= shift
                    there -= shift
                    back += shift
            cap[arc(net, p, k)] = there
            cap[sister(net, p, k)] = back
    return count


@lean
def _cut(net, count, members, member, x, b, cap, term, t, rounding, left):
    """Is there a cheaper exchange?  The trees then say which."""
    zero = term[0] - term[0]
    now = zero
    for i in range(count):
        p = np.int64(members[i])
        if x[p] == b:
            now += max(term[p], zero)
        else:
            now -= min(term[p], zero)
            for k in range(degree(net, p)):
                q = head(net, p, k)
                if member[q] == 1 and x[q] == b:
                    now += cap[arc(net, p, k)]
    if now <= 0:
        return False
    flow = zero
    for i in range(count):  # what can go straight to a neighbour does not need trees
        p = np.int64(members[i])
        if term[p] <= 0:
            continue
        for k in range(degree(net, p)):
            c = cap[arc(net, p, k)]
            if c > 0:
                q = head(net, p, k)
                if term[q] < 0:
                    f = min(min(term[p], c), -term[q])
                    term[p] -= f
                    term[q] += f
                    cap[arc(net, p, k)] -= f
                    cap[sister(net, p, k)] += f
                    flow += f
    t.control[:] = 0
    active = 0
    for i in range(count):
        p = members[i]
        t.stamp[p] = 0
        t.depth[p] = 1
        t.queued[p] = 0
        t.side[p] = 0
        t.parent[p] = NONE
        if term[p] != 0:
            t.side[p] = 1 if term[p] > 0 else -1
            t.parent[p] = TERMINAL
            t.queue[active] = p
            t.queued[p] = 1
            active += 1
    t.control[COUNT] = active
    flow += run(net, cap, term, zero, t, None, left)
    return ended(t) and now - flow > rounding * now


@lean
def _swaps(net, m, cards, start, unary, x, cap, term, t, pairs, tried, mark, members, member, control, rounding, left):
    """Swaps from pair control[0] on, until the last one, a pair that is no cut, or enough work for one call."""
    work = 0
    while control[0] < len(pairs):
        i = control[0]
        a = np.int64(pairs[i, 0])
        b = np.int64(pairs[i, 1])
        if mark[a] <= tried[i] and mark[b] <= tried[i]:
            control[0] += 1
            continue
        if work > KERNEL_WORK:
            return False
        count = _network(net, m, cards, start, unary, x, a, b, members, member, cap, term)
        if count < 0:
            return True
        control[0] += 1
        control[1] += 1  # the clock
        tried[i] = control[1]
        work += count + len(x) // 16
        better = _cut(net, count, members, member, x, b, cap, term, t, rounding, left)
        if better:
            control[2] += 1
            for j in range(count):
                p = np.int64(members[j])
                member[p] = x[p] != (a if t.side[p] > 0 else b)
            for j in range(count):  # both labels of who changes, and those around
                p = np.int64(members[j])
                if member[p] == 1:
                    x[p] = a + b - x[p]
                    mark[a] = control[1]
                    mark[b] = control[1]
                    for k in range(degree(net, p)):
                        q = head(net, p, k)
                        if cards[q] > 0:
                            mark[x[q]] = control[1]
        for j in range(count):
            p = members[j]
            member[p] = 0
            t.side[p] = 0
            t.parent[p] = NONE
    return False


@dataclass(eq=False)
class Swaps:
    """Labels and work space of swap moves on one pairwise model."""

    model: PairModel
    labels_of: npt.NDArray[np.integer]  # (n,) where to start

    def __post_init__(self) -> None:
        model, net = self.model, self.model.net
        nodes, count = model.nodes, int(model.cards.max(initial=1))
        require(PAIR_BYTES * count**2, f"swap: the pairs of {count} labels")
        arcs = nodes * net.degree if isinstance(net, Grid) else len(net.heads)
        self.x = np.full(nodes, -1, np.int32)
        self.x[model.node] = self.labels_of
        self.start = np.cumsum(model.cards, dtype=np.int64) - model.cards
        self.cap, self.term = np.zeros(arcs, model.unary.dtype), np.zeros(nodes, model.unary.dtype)
        self.trees = new_trees(nodes, net)
        self.pairs = np.stack(np.triu_indices(count, 1), axis=1)
        self.tried, self.mark = np.full(len(self.pairs), -1, np.int64), np.zeros(count, np.int64)
        self.members, self.member = np.zeros(nodes, np.int32), np.zeros(nodes, np.uint8)
        self.control = np.zeros(3, np.int64)  # next pair, clock, swaps that lowered the energy
        self.rounding = 0.0 if model.unary.dtype == np.int32 else 1e-12  # sums over a whole model may round

    def advance(self, left: float = EVER) -> tuple[int, int] | None:
        """Swaps for a while; the pair of labels to be swapped in another way, if the next one is no cut.

        A swap that takes more than ``left`` seconds is not made.
        """
        model = self.model
        stuck = _swaps(
            model.net, model.edges, model.cards, self.start, model.unary, self.x, self.cap, self.term, self.trees,
             self.pairs, self.tried, self.mark, self.members, self.member, self.control, self.rounding, left,
        )  # fmt: skip
        if not stuck:
            return None
        a, b = self.pairs[self.control[0]]
        return int(a), int(b)

    @property
    def swept(self) -> bool:
        """Have all pairs had their turn?"""
        return bool(self.control[0] >= len(self.pairs))

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        return self.x[self.model.node].astype(np.int64)

    @property
    def swaps(self) -> int:
        """How many lowered the energy."""
        return int(self.control[2])

    def again(self) -> None:
        """Begin another sweep over all pairs."""
        self.control[0] = 0

    def skip(self, labels: npt.NDArray[np.integer] | None) -> None:
        """Go on with the next pair, with the labels that another way found if they are better."""
        self.control[1] += 1
        self.tried[self.control[0]] = self.control[1]
        self.control[0] += 1
        if labels is not None:
            self.x[self.model.node] = labels
            self.mark[:] = self.control[1]
            self.control[2] += 1
