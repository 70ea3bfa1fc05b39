"""Factors inside of larger ones become part of them: the same energy with fewer factors and a tighter relaxation.

Copies of different factors have to agree on single variables only.  A pair inside a factor of four variables agrees
with it entirely once it is added to its table; where several contain it, each takes an equal share.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tightmap.energy.certificate import UNIT
from tightmap.energy.energies import message_offsets
from tightmap.factors.kernels import tabulate
from tightmap.graph.graph import Arrays, FloatArray, Graph, IntArray, Kind
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled

LARGEST = 1024  # entries of a table that takes in others
MOST = 1 << 24  # entries of all of these
MANY = 200_000  # factors: looking for larger ones takes some microseconds each


@dataclass(frozen=True)
class Absorbed:
    """A graph in which some factors of another one are part of others.

    size   entries of a message vector of the other graph
    place  where those of this graph are in it; None: everywhere, it is the same graph
    """

    graph: Graph
    size: int = 0
    place: IntArray | None = None

    def take(self, messages: FloatArray) -> FloatArray:
        """Messages of the other graph, without those of absorbed factors."""
        return messages if self.place is None else messages[self.place]

    def give(self, messages: FloatArray) -> FloatArray:
        """Messages of the other graph: none from absorbed factors."""
        if self.place is None:
            return messages
        out = np.zeros(self.size)
        out[self.place] = messages
        return out


def _hosts(graph: Graph, context: Context | None) -> list[tuple[int, list[int]]]:
    """(factor, larger factors with small tables that contain it)."""
    g = graph.arrays
    arity = np.diff(g.scope_start)
    entries = np.multiply.reduceat(g.cards[g.scope].astype(np.float64), g.scope_start[:-1])
    able = (arity > 2) & (entries <= LARGEST)
    if entries[able].sum() > MOST:
        return []
    scopes = [frozenset(g.scope[a:b].tolist()) for a, b in zip(g.scope_start[:-1], g.scope_start[1:], strict=True)]
    found = []
    for f in range(graph.m):
        if f % 1024 == 0 and context is not None and context.remaining() <= 0.0:
            return []
        if arity[f] == graph.order:
            continue
        rare = min(scopes[f], key=lambda i: int(g.adj_start[i + 1] - g.adj_start[i]))
        around = g.adj_factor[g.adj_start[rare] : g.adj_start[rare + 1]].tolist()
        larger = [h for h in around if able[h] and arity[h] > arity[f] and scopes[f] < scopes[h]]
        if larger:
            found.append((f, larger))
    return found


@compiled
def _fill(g, hosts, begin, flat):
    for h in range(len(hosts)):
        tabulate(g, hosts[h], flat[begin[h] :])


def absorb(graph: Graph, context: Context | None = None) -> Absorbed:
    """The graph with every factor that lies inside of larger ones added to these (none when time is up)."""
    if graph.order <= 2 or graph.m > MANY:
        return Absorbed(graph)
    found = _hosts(graph, context)
    if not found:
        return Absorbed(graph)
    g = graph.arrays
    gone = {f for f, _ in found}
    pairs = [(f, [h for h in larger if h not in gone]) for f, larger in found]  # what contains those contains f too
    hosts = np.array(sorted({h for _, larger in pairs for h in larger}), dtype=np.int64)
    cards = g.cards.astype(np.int64)

    def scope(f: int) -> IntArray:
        return g.scope[g.scope_start[f] : g.scope_start[f + 1]].astype(np.int64)

    def shape(f: int) -> tuple[int, ...]:
        return tuple(int(c) for c in cards[scope(f)])

    sizes = np.array([int(np.prod(shape(int(h)))) for h in hosts])
    begin = np.concatenate(([0], np.cumsum(sizes)))
    flat = np.empty(int(begin[-1]) + LARGEST + graph.order)
    _fill(g, hosts, begin, flat)
    flat = flat[: begin[-1]]
    size = float(np.maximum.reduceat(np.abs(flat), begin[:-1]).sum())
    number = {int(h): k for k, h in enumerate(hosts)}
    own = np.empty(LARGEST + graph.order)
    for f, larger in pairs:
        count = int(tabulate(g, f, own))
        table = own[:count].reshape(shape(f)) / len(larger)
        size += float(np.abs(table).max()) * len(larger)
        for h in larger:
            k = number[h]
            where = {int(v): p for p, v in enumerate(scope(h))}
            axes = [where[int(v)] for v in scope(f)]
            spread = [1] * len(where)
            for axis, v in zip(axes, scope(f), strict=True):
                spread[axis] = int(cards[v])
            target = flat[begin[k] : begin[k + 1]].reshape(shape(h))
            target += table.transpose(np.argsort(axes)).reshape(spread)
    return _assemble(graph, np.array(sorted(gone), dtype=np.int64), hosts, begin, flat, size)


def _assemble(
    graph: Graph, gone: IntArray, hosts: IntArray, begin: IntArray, flat: FloatArray, size: float
) -> Absorbed:
    """The graph without some factors, and with tables of their own for others."""
    g = graph.arrays
    kept = np.setdiff1d(np.arange(graph.m), gone)
    kind, weight, param = g.kind.copy(), g.weight.copy(), g.param.copy()
    kind[hosts], weight[hosts] = int(Kind.DENSE), 1.0
    param[hosts] = len(g.params) + begin[:-1]
    arity = np.diff(g.scope_start)
    start = np.concatenate(([0], np.cumsum(arity[kept]))).astype(np.int64)
    positions = np.concatenate([np.arange(g.scope_start[f], g.scope_start[f + 1]) for f in kept])
    scope = g.scope[positions]
    order = np.argsort(scope, kind="stable")
    factor = np.repeat(np.arange(len(kept)), arity[kept])
    adj_start = np.concatenate(([0], np.cumsum(np.bincount(scope, minlength=graph.n)))).astype(np.int64)
    arrays = Arrays(
        cards=g.cards, offset=g.offset, unary=g.unary, kind=kind[kept], scope_start=start, scope=scope,
        weight=weight[kept], param=param[kept], iparam=g.iparam[kept], params=np.concatenate((g.params, flat)),
        ints=g.ints, adj_start=adj_start, adj_factor=factor[order].astype(np.int32),
        adj_pos=(order - start[factor[order]]).astype(np.int8),
    )  # fmt: skip
    hard = graph.params_hard
    if hard is not None:
        hard = np.concatenate((hard, flat >= 0.5 * graph.hard))
    # every entry is a sum of at most as many numbers as a factor has subsets, divided once
    slack = graph.slack + UNIT * 2.0 ** (graph.order + 1) * size
    made = replace(graph, arrays=arrays, params_hard=hard, slack=slack, grid_shape=None)
    at = message_offsets(graph)
    place = np.concatenate([np.arange(at[g.scope_start[f]], at[g.scope_start[f + 1]]) for f in kept])
    return Absorbed(made, int(at[-1]), place)
