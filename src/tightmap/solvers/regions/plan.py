"""What a sweep over a region graph has to know about every message, in the order in which a sweep needs it.

Nearly all messages of practical models go from pairs, or from small tables of three variables, to variables.  Reading
off how to compute one of these from the region graph takes several times as long as computing it.  So it is read once,
and written down per edge that enters a region, region by region (position k of ``Dag.in_edge``).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.factors.kernels import tabulate
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.runtime.compiled import compiled
from tightmap.solvers.regions.cluster_kernels import FEW
from tightmap.solvers.regions.regions import SQUARE, STRUCT, TABLE, TRIPLET, ZERO, Dag, Regions

# How a message is computed: GENERAL by kernels.marginal, the others by sends.py
GENERAL, POTTS_PAIR, FROM_ROWS, FROM_COLUMNS, DIFFERENCE, TRIPLE, TABLED, LANED, PRODUCT = range(9)
SEND_FORWARD, SEND_BACKWARD, SHARE_FORWARD, SHARE_BACKWARD, COUNTED = 1, 2, 4, 8, 16  # bits of ``acts``
UNKNOWN, NO_COST, POTTS_COST, DENSE_COST = -4, -3, -2, -1  # costs of a region: made anew every time; zero; of the graph
LARGEST_STORED = 256  # entries of a table of another kind that is kept; a larger one is made anew for every message
MOST_STORED = 1 << 20  # entries of all tables that are kept, unless the messages are more than that


class Plan(NamedTuple):
    form: npt.NDArray[np.uint8]  # (E,) in the order of Dag.in_edge, as all up to ``param``
    acts: npt.NDArray[np.uint8]  # (E,) when the message is sent, and when it takes its share
    own: IntArray  # (E,) where the message starts
    other: IntArray  # (E,) pairs: where the message to the other variable starts; or a row of the following
    labels: npt.NDArray[np.int32]  # (E,) pairs: labels of the other variable
    weight: FloatArray  # (E,) of the factor; 1 where its table is stored
    param: IntArray  # (E,) where its table starts: in Arrays.params, or len(params) + where it starts in ``stored``
    triples: IntArray  # rows of 8, see _triples
    squares: IntArray  # rows of 10, see _squares
    products: IntArray  # rows of 9, see _products
    cost: (
        IntArray  # (R,) where the table of a region starts in ``stored``; else it has none, is that of a Potts or dense
    )
    # factor, or has to be made anew (UNKNOWN)
    stored: FloatArray  # tables of other kinds, with their weights
    four: npt.NDArray[np.uint8]  # (n,) variables of four labels between Potts pairs of positive weights
    copied: npt.NDArray[np.bool_]  # (1,) rounding changes messages that are read again


@compiled
def _store(g, factors, start, out):
    for k in range(len(factors)):
        tabulate(g, factors[k], out[start[k] :])


def _stored(regions: Regions, wanted: IntArray) -> tuple[IntArray, FloatArray]:
    """Tables of the wanted factors: where each starts (-1: too large), and all of them, those that are equal once."""
    graph = regions.graph
    g = graph.arrays
    start = np.full(graph.m, -1, dtype=np.int64)
    arity = np.diff(g.scope_start)
    wanted = wanted[g.kind[wanted] != Kind.SECOND_DIFFERENCE]  # its costs depend on the variables
    chosen: list[IntArray] = []
    sizes: list[IntArray] = []
    for k in np.unique(arity[wanted]):
        mine = wanted[arity[wanted] == k]
        cards = g.cards[g.scope[g.scope_start[mine][:, None] + np.arange(k)]].astype(np.int64)
        size = cards.astype(np.float64).prod(axis=1)
        mine, cards = mine[size <= LARGEST_STORED], cards[size <= LARGEST_STORED]
        if not len(mine):
            continue
        key = np.column_stack((g.kind[mine], g.param[mine], g.iparam[mine], g.weight[mine].view(np.int64), cards))
        _, first, same = np.unique(key, axis=0, return_index=True, return_inverse=True)
        start[mine] = len(np.concatenate(chosen)) if chosen else 0
        start[mine] += same.reshape(-1)  # number of the table, until it is known where that starts
        chosen.append(mine[first])
        sizes.append(cards[first].prod(axis=1))
    if not chosen:
        return start, np.zeros(1)
    begin = np.concatenate(([0], np.cumsum(np.concatenate(sizes))))
    if begin[-1] > max(MOST_STORED, regions.entries):
        return np.full(graph.m, -1, dtype=np.int64), np.zeros(1)
    out = np.zeros(int(begin[-1]) + graph.order)  # tabulate works behind the table
    _store(g, np.concatenate(chosen), begin[:-1], out)
    known = start >= 0
    start[known] = begin[start[known]]
    return start, out


def _triples(regions: Regions, edges: IntArray) -> IntArray:
    """Rows of 8: where the messages of the other two variables start, their labels; three strides of the table, unused.

    The variable whose message is added first comes first: the last one, or the first one for messages to the last.
    Strides: of the variable that the message goes to, of the first and of the second of the others.
    """
    d = regions.dag
    begin = d.out_start[d.source[edges]]
    place = edges - begin
    inner = np.where(place == 2, 0, 2)
    outer = 3 - place - inner
    cards = d.size[d.target[begin[:, None] + np.arange(3)]]
    strides = np.stack((cards[:, 1] * cards[:, 2], cards[:, 2], np.ones(len(edges), np.int64)), axis=1)
    row = np.arange(len(edges))
    out = np.zeros((len(edges), 8), dtype=np.int64)
    out[:, 0], out[:, 1] = d.at[begin + inner], d.at[begin + outer]
    out[:, 2], out[:, 3] = cards[row, inner], cards[row, outer]
    out[:, 4], out[:, 5], out[:, 6] = strides[row, place], strides[row, inner], strides[row, outer]
    return out.reshape(-1)


def _squares(regions: Regions, edges: IntArray) -> IntArray:
    """Rows of 10: what ``square_in_lanes`` takes between the messages and the scratch, for messages of squares."""
    d = regions.dag
    square = d.source[edges].astype(np.int64)
    first = np.repeat(d.out_start[square], 6)
    leaving = first + np.tile(np.arange(6), len(edges))
    here = leaving < np.repeat(d.out_start[square + 1], 6)
    row, leaving = np.repeat(np.arange(len(edges)), 6)[here], leaving[here]
    at = np.full((len(edges), 16), -1, dtype=np.int64)  # by 4 * first + second position of a pair
    at[row, d.map_at[leaving]] = d.at[leaving]
    a, b = np.divmod(d.map_at[edges], 4)
    others = np.array([[p for p in range(4) if p not in (i // 4, i % 4)][:2] for i in range(16)])
    c, w = others[d.map_at[edges]].T
    number = np.arange(len(edges))
    out = np.empty((len(edges), 10), dtype=np.int64)
    for column, (p, q) in enumerate(((a, c), (a, w), (b, c), (b, w), (c, w))):
        out[:, column] = at[number, 4 * np.minimum(p, q) + np.maximum(p, q)]
    out[:, 5] = (a > c) | (a > w) * 2 | (b > c) * 4 | (b > w) * 8
    for column, p in enumerate((a, b, c, w)):
        out[:, 6 + column] = regions.graph.arrays.cards[d.scope[d.scope_start[square] + p]]
    return out.reshape(-1)


def _products(regions: Regions, edges: IntArray) -> IntArray:
    """Rows of 9: what ``send_product`` takes for messages of zero triplets (i, j, k), which send to ij, ik and jk."""
    d, cards = regions.dag, regions.graph.arrays.cards.astype(np.int64)
    triplet = d.source[edges].astype(np.int64)
    begin = d.out_start[triplet]
    ij, ik, jk = (d.at[begin + p] for p in range(3))
    ni, nj, nk = (cards[d.scope[d.scope_start[triplet] + p]] for p in range(3))
    one = np.ones_like(ni)
    to_ij = (ik, jk, nk, one, nk, one, ni, nj, nk)
    to_ik = (ij, jk, nj, one, one, nk, ni, nk, nj)
    to_jk = (ij, ik, one, nj, one, nk, nj, nk, ni)
    rows = np.array((to_ij, to_ik, to_jk), dtype=np.int64)  # (3, 9, E)
    return np.ascontiguousarray(rows[edges - begin, :, np.arange(len(edges))]).reshape(-1)


def _costs(regions: Regions) -> tuple[IntArray, FloatArray]:
    """Where the costs of every region are, and the tables that are written out because their kind has none."""
    graph, d = regions.graph, regions.dag
    g, n = graph.arrays, graph.n
    is_factor = np.zeros(len(d.mode), dtype=bool)
    is_factor[n : n + graph.m] = True
    cost = np.full(len(d.mode), NO_COST, dtype=np.int64)
    own_kind = np.full(len(d.mode), 255, dtype=np.int64)
    own_kind[n : n + graph.m] = g.kind
    written = is_factor & ((d.mode == TABLE) | ((d.mode == STRUCT) & (np.diff(d.scope_start) == 3)))
    other_kinds = written & (own_kind != Kind.DENSE) & (own_kind != Kind.POTTS)
    start, stored = _stored(regions, np.flatnonzero(other_kinds) - n)
    cost[own_kind == Kind.DENSE] = DENSE_COST
    cost[own_kind == Kind.POTTS] = POTTS_COST
    held = np.flatnonzero(other_kinds)
    cost[held] = np.where(start[held - n] < 0, UNKNOWN, start[held - n])
    return cost, stored


def _acts(d: Dag) -> npt.NDArray[np.uint8]:
    """What a visit does with every message, as bits."""
    forward, backward, counted = (v[d.in_edge].astype(np.uint8) for v in (d.forward, d.backward, d.counted))
    return (
        SEND_FORWARD * backward
        | SEND_BACKWARD * (forward | counted)
        | SHARE_FORWARD * forward
        | SHARE_BACKWARD * backward
        | COUNTED * counted
    ).astype(np.uint8)


def make_plan(regions: Regions) -> Plan:
    """How every message is computed, read off the region graph."""
    graph, d = regions.graph, regions.dag
    g, n = graph.arrays, graph.n
    e = d.in_edge
    count = len(e)
    source = d.source[e].astype(np.int64)
    mode = d.mode[source]
    factor = np.where((source >= n) & (source < n + graph.m), source - n, 0)
    kind = g.kind[factor] if graph.m else np.zeros(count, np.uint8)
    arity = np.diff(d.scope_start)
    cost, stored = _costs(regions)

    form = np.full(count, GENERAL, dtype=np.uint8)
    pair = (mode == STRUCT) & (arity[source] == 2)
    first = e == d.out_start[source]
    form[pair & (kind == Kind.POTTS)] = POTTS_PAIR
    form[pair & (kind == Kind.DENSE) & first] = FROM_ROWS
    form[pair & (kind == Kind.DENSE) & ~first] = FROM_COLUMNS
    form[pair & ((kind == Kind.LINEAR) | (kind == Kind.QUADRATIC))] = DIFFERENCE
    triple = (mode == STRUCT) & (arity[source] == 3) & (cost[source] != UNKNOWN)
    form[triple] = TRIPLE
    form[((mode == TABLE) | (mode == ZERO)) & (cost[source] != UNKNOWN)] = TABLED

    largest = np.maximum.reduceat(g.cards[d.scope], d.scope_start[:-1]) if count else np.zeros(0)
    laned = (mode == SQUARE) & (largest[source] <= FEW)
    form[laned] = LANED
    product = mode == TRIPLET
    form[product] = PRODUCT

    facing = np.where(first, e + 1, e - 1)[pair]
    other = np.zeros(count, dtype=np.int64)
    other[pair] = d.at[facing]
    other[triple] = np.arange(int(triple.sum()))
    other[laned] = np.arange(int(laned.sum()))
    other[product] = np.arange(int(product.sum()))
    labels = np.zeros(count, dtype=np.int32)
    labels[pair] = d.size[d.target[facing]]
    weight = g.weight[factor] if graph.m else np.ones(count)
    param = g.param[factor] if graph.m else np.zeros(count, np.int64)
    kept = triple & (cost[source] >= 0)
    weight[kept] = 1.0
    param[kept] = len(g.params) + cost[source[kept]]
    four = d.size[:n] == 4
    four[d.target[e[~((form == POTTS_PAIR) & (labels == 4) & (weight >= 0.0)) & (d.target[e] < n)]]] = False
    return Plan(
        form,
        _acts(d),
        d.at[e],
        other,
        labels,
        weight,
        param,
        _triples(regions, e[triple]) if triple.any() else np.zeros(8, np.int64),
        _squares(regions, e[laned]) if laned.any() else np.zeros(10, np.int64),
        _products(regions, e[product]) if product.any() else np.zeros(9, np.int64),
        cost,
        stored,
        four.astype(np.uint8),
        np.array([not ((form > GENERAL) & (form < TRIPLE)).all()]),
    )
