"""Models in which labels are only names: a labelling is a partition of the variables, and a partition is a multicut.

    E(x) = constant + sum over pairs uv of w_uv y_uv + sum over triples uvk of d_uvk [x_u, x_v, x_k all different]

    y_uv = [x_u != x_v],     weights of both signs

Potts factors are pairs.  A label pattern of three variables has five values, v(all equal), v(k apart), v(v apart),
v(u apart), v(all different): four numbers above the first one, written as three pairs and a triple,

    w_uv = (v(v apart) + v(u apart) - v(k apart) - v(all equal)) / 2,  and so on,
    d    = v(all different) - v(all equal) - w_uv - w_uk - w_vk.

With as many labels as variables every partition is a labelling.  With fewer, two parts may share a label where no pair
lies between them: the parts are coloured (``labelling``), and four colours are enough for a picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT
from tightmap.graph.graph import Graph, Kind

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SignedGraph:
    """Pairs and triples of a partition problem."""

    n: int
    labels: int  # of every variable
    pairs: IntArray  # (m, 2), first < second, no two alike
    weight: FloatArray  # (m,)
    triples: IntArray  # (t, 3), ascending
    sides: IntArray  # (t, 3): the pairs 01, 02, 12 of every triple
    extra: FloatArray  # (t,) cost of three different labels
    constant: float
    error: float  # of the sums above, at most

    @property
    def free(self) -> bool:
        """Whether every partition is a labelling."""
        return enough_labels(self.n, self.labels, len(self.pairs))

    def value(self, part: IntArray) -> float:
        """Energy of a partition, without the constant."""
        cut = part[self.pairs[:, 0]] != part[self.pairs[:, 1]]
        total = float(self.weight[cut].sum())
        if len(self.triples):
            total += float(self.extra[cut[self.sides].all(axis=1)].sum())
        return total


def enough_labels(n: int, labels: int, pairs: int) -> bool:
    """Whether labels are enough for every partition: a graph that needs k colours has a pair for any two of them."""
    return labels >= n or labels * (labels + 1) // 2 > pairs


def suits(graph: Graph) -> bool:
    """Whether labels are only names: pairs and triples that tell equal labels from different ones, nothing else."""
    if graph.unlisted or graph.hard > 0.0 or graph.order > 3 or not graph.uniform or graph.m == 0:
        return False
    g = graph.arrays
    if not np.isin(g.kind, (Kind.POTTS, Kind.PATTERN, Kind.PN_POTTS, Kind.DENSE)).all():
        return False
    costs = g.unary.reshape(graph.n, -1)
    if (costs != costs[:, :1]).any():
        return False
    k = graph.max_labels
    agree = np.flatnonzero(g.kind == Kind.PN_POTTS)
    if not all((g.params[s + 1 : s + 1 + k] == g.params[s + 1]).all() for s in np.unique(g.param[agree])):
        return False
    return _all_patterns(graph)


def _all_patterns(graph: Graph) -> bool:
    """Whether all plain tables, as small label patterns are written, tell equal labels from different ones only."""
    g, k = graph.arrays, graph.max_labels
    tables = np.flatnonzero(g.kind == Kind.DENSE)
    if len(tables) == 0:
        return True
    if k < 3 or (np.diff(g.scope_start)[tables] != 3).any():  # tables of pairs would have been recognised
        return False
    a, b, c = np.indices((k, k, k)).reshape(3, -1)
    rank = np.select([(a == b) & (b == c), a == b, a == c, b == c], [0, 1, 2, 3], 4)
    own = _representatives(k)
    starts = np.unique(g.param[tables])
    return all((g.params[s : s + k**3] == g.params[s + own][rank]).all() for s in starts)


def _representatives(labels: int) -> IntArray:
    """An entry of a table of three variables for each pattern: 000, 001, 010, 011, 012."""
    return np.array([0, 1, labels, labels + 1, labels + 2])


def signed_graph(graph: Graph) -> SignedGraph:
    """The partition problem of a model that ``suits``."""
    g = graph.arrays
    n, wide = graph.n, np.diff(g.scope_start)
    pairs, weights = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    triples, extras = np.zeros((0, 3), np.int64), np.zeros(0)
    constant = float(g.unary.reshape(n, -1)[:, 0].sum())
    size = float(np.abs(g.unary.reshape(n, -1)[:, 0]).sum())
    for f_of, arity in ((np.flatnonzero(wide == 2), 2), (np.flatnonzero(wide == 3), 3)):
        if len(f_of) == 0:
            continue
        scope = np.stack([g.scope[g.scope_start[f_of] + p] for p in range(arity)], -1).astype(np.int64)
        value = g.weight[f_of, None] * _values(graph, f_of, 2 if arity == 2 else 5)
        constant += float(value[:, 0].sum())
        size += 8.0 * float(np.abs(value).sum())
        v = value - value[:, :1]
        if arity == 2:
            pairs.append(scope)
            weights.append(v[:, 1])
            continue
        first, second = (v[:, 2] + v[:, 3] - v[:, 1]) / 2, (v[:, 1] + v[:, 3] - v[:, 2]) / 2
        third = (v[:, 1] + v[:, 2] - v[:, 3]) / 2
        pairs += [scope[:, [0, 1]], scope[:, [0, 2]], scope[:, [1, 2]]]
        weights += [first, second, third]
        triples, extras = scope, v[:, 4] - first - second - third
    every = np.concatenate(pairs)
    keys, place = np.unique(every[:, 0] * n + every[:, 1], return_inverse=True)
    weight: FloatArray = np.bincount(place, np.concatenate(weights), len(keys)).astype(np.float64)
    sides = np.zeros((len(triples), 3), np.int64)
    for p, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
        sides[:, p] = np.searchsorted(keys, triples[:, a] * n + triples[:, b])
    keep = extras != 0.0
    error = UNIT * (len(every) + n + 8) * size
    both = np.column_stack((keys // n, keys % n))
    return SignedGraph(n, graph.max_labels, both, weight, triples[keep], sides[keep], extras[keep], constant, error)


def _values(graph: Graph, factors: IntArray, count: int) -> FloatArray:
    """One row per factor: its value for every pattern of equal labels."""
    g = graph.arrays
    value = np.zeros((len(factors), count))
    kind, start = g.kind[factors], g.param[factors]
    value[kind == Kind.POTTS, 1] = 1.0
    chosen = kind == Kind.PATTERN
    value[chosen] = g.params[start[chosen, None] + np.arange(count)]
    chosen = kind == Kind.DENSE
    value[chosen] = g.params[start[chosen, None] + _representatives(graph.max_labels)[:count]]
    chosen = kind == Kind.PN_POTTS
    value[chosen] = g.params[start[chosen]][:, None]
    value[chosen, 0] = g.params[start[chosen] + 1]
    return value


def labelling(problem: SignedGraph, part: IntArray) -> IntArray:
    """Labels of a partition: parts are coloured, those with the most neighbours that have colours already first."""
    _, part = np.unique(part, return_inverse=True)
    count = int(part.max()) + 1
    if count <= problem.labels:
        return part.astype(np.int64)
    k = problem.labels
    a, b = part[problem.pairs[:, 0]], part[problem.pairs[:, 1]]
    keys, place = np.unique(np.minimum(a, b) * count + np.maximum(a, b), return_inverse=True)
    between = np.bincount(place, problem.weight, len(keys))
    near: list[dict[int, float]] = [{} for _ in range(count)]
    for key, w in zip(keys.tolist(), between.tolist(), strict=True):
        if key // count != key % count:
            near[key // count][key % count] = near[key % count][key // count] = w
    cost = np.zeros((count, k))  # of a colour: what its parts there would gain by staying apart
    used = np.zeros((count, k), bool)
    colour = np.full(count, -1)
    for _ in range(count):
        left = np.flatnonzero(colour < 0)
        i = int(left[np.argmax(used[left].sum(1) * count + [len(near[j]) for j in left])])
        free = np.flatnonzero(~used[i])
        colour[i] = free[0] if len(free) else int(np.argmin(cost[i]))
        for j, w in near[i].items():
            used[j, colour[i]] = True
            cost[j, colour[i]] -= w
    return colour[part].astype(np.int64)
