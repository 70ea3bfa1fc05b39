"""A pairwise graph made ready for cuts: exact arithmetic, implicit neighbours on grids, zero diagonals.

* Costs are put on a grid of exactly representable numbers: int32 where the model's costs are small integers (times its
  quantum), else float64 rounded to multiples of a power of two so coarse that sums never round.  A cut is then exact
  and residual capacities need no tolerance.
* A grid of variables gets a frame of dead nodes and fixed strides (network.py); any other graph gets neighbour lists.
* The primal-dual moves need tables with theta(a, a) = 0, so a diagonal goes to the unaries of the first variable
  (tables.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from tightmap.factors.pairs import DENSE, POTTS, QUADRATIC
from tightmap.graph.graph import Arrays, Graph
from tightmap.graph.lattice import Lattice
from tightmap.graph.pixel_costs import in_parts
from tightmap.graph.stencil import distinct_steps
from tightmap.graphcut.lattice_pairs import by_edge_number, framed_grid, largest_around
from tightmap.graphcut.network import Csr, Grid, csr_from_edges
from tightmap.graphcut.tables import cut_tables
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.pace import check_time

INT32_LIMIT = 1 << 24  # largest local sum that is trusted to int32: duals may be a few times larger
FLOAT_BITS = 44  # significant bits of a local sum in float64; the other nine are room for sums


class Edges(NamedTuple):
    """Pairwise factors by edge number of the network; all costs of one type (int32 or float64), see ``pair``.

    On a grid the numbers that belong to no factor have weight 0.
    """

    kind: npt.NDArray[np.uint8]
    weight: npt.NDArray[Any]
    base: npt.NDArray[np.int64]  # of the table, or of the limit, in tables
    stride: npt.NDArray[np.int32]  # labels of head
    tables: npt.NDArray[Any]
    magic: npt.NDArray[
        Any
    ]  # [0]: adding and subtracting it rounds to the grid of exact numbers; [1]: a few of its steps


@dataclass(frozen=True, eq=False)
class PairModel:
    edges: Edges
    net: Csr | Grid
    node: npt.NDArray[np.int64]  # (n,) network node of every variable
    cards: npt.NDArray[np.int32]  # (nodes,) 0 for dead nodes
    room: npt.NDArray[np.int32]  # (nodes,) labels of the variable of every node, settled or not
    number: npt.NDArray[np.int64]  # (factors,) edge number of every factor; none where the graph has no list of them
    diagonal_of: npt.NDArray[np.int64]  # (factors,) where the diagonal that moved to the tail is in diagonals, or -1
    diagonals: npt.NDArray[np.float64]
    unary: npt.NDArray[Any]  # flat as graph.arrays.unary, with the diagonals, in the cost type
    scale: float  # energy = scale * cost
    around: float = 0.0  # largest sum of the costs of the edges of one variable, in the units of the graph
    settled: npt.NDArray[np.int32] | None = None  # (nodes,) label where no cut is needed, or -1; settled_variables.py

    @property
    def nodes(self) -> int:
        return len(self.cards)


@compiled(inline="always")
def pair(kinds, weight, base, stride, tables, magic, e, a, b):
    """Cost of edge e at labels a (tail) and b (head); the first six arguments are the fields of ``Edges``."""
    kind = kinds[e]
    w = weight[e]
    if kind == POTTS:
        return w if a != b else w - w
    if kind == DENSE:
        v = w * tables[base[e] + np.int64(a) * stride[e] + b]
    else:
        d = abs(np.int64(a) - np.int64(b))
        if kind == QUADRATIC:
            d *= d
        limit = tables[base[e]]
        v = w * (limit if d >= limit else type_like(d, limit))
    return (v + magic[0]) - magic[0]


def type_like(d, like):
    """The integer d as a number of the type of ``like``, so that int32 stays int32."""
    return type(like)(d)


@overload(type_like, inline="always")
def _type_like(d, like):
    if isinstance(like, types.Integer):
        return lambda d, like: like - like + np.int32(d)
    return lambda d, like: like - like + np.float64(d)


@lean
def _place(scope, width, steps, right, node, number):
    """Edge numbers on the framed grid; False if a factor joins variables across its border."""
    half = len(steps)
    for f in range(len(number)):
        i = np.int64(scope[2 * f])
        d = scope[2 * f + 1] - i
        k = 0
        while steps[k] != d:
            k += 1
        column = i % width + right[k]
        if column < 0 or column >= width:
            return False
        number[f] = node[i] * half + k
    return True


def _grid_layout(graph: Graph) -> tuple[Grid, npt.NDArray[np.int64], int, npt.NDArray[np.int64]] | None:
    """Framed grid network, node of every variable, number of nodes, and edge number of every factor, when all edges
    join king's-move neighbours."""
    if graph.m == 0:
        return None
    scope, room = graph.arrays.scope, np.zeros(4, np.int64)
    count = distinct_steps(scope, room)
    if count < 0:
        return None
    distinct = room[:count]
    widths = [] if graph.grid_shape is None else [graph.grid_shape[1]]
    widths += [int(distinct.max()) + d for d in (0, -1, 1)]
    number = np.empty(graph.m, np.int64)
    for width in dict.fromkeys(widths):
        if width < 3 or graph.n % width:
            continue
        down = (distinct + 1) // width
        right = distinct - down * width
        if down.max() > 1 or np.abs(right).max() > 1:
            continue
        frame = width + 1
        height = graph.n // width
        node = ((np.arange(height)[:, None] + 1) * frame + np.arange(width) + 1).ravel()
        if not _place(scope, width, distinct, right, node, number):
            continue
        strides = down * frame + right  # ascending, as the steps are
        pairs = np.stack([strides, -strides], axis=1).ravel().astype(np.int64)
        return Grid(pairs, len(pairs)), node, (height + 2) * frame + 2, number
    return None


@compiled
def _largest_around(scope, kind, weight, base, tables, dense, around):
    """Largest sum over the edges of one variable of twice their largest cost."""
    for f in range(len(kind)):
        biggest = 1.0 if kind[f] == POTTS else dense if kind[f] == DENSE else tables[base[f]]
        cost = 2.0 * biggest * abs(weight[f])
        around[scope[2 * f]] += cost
        around[scope[2 * f + 1]] += cost
    largest = 0.0
    for i in range(len(around)):
        largest = max(largest, around[i])
    return largest


def _sum_around(g: Arrays, kind: npt.NDArray[Any], base: npt.NDArray[Any], tables: npt.NDArray[Any]) -> float:
    """Largest sum of magnitudes of the costs of the edges of one variable."""
    if len(kind) == 0:
        return 0.0
    dense = float(max(tables.max(), -tables.min())) if (kind == DENSE).any() else 0.0  # no copy of all tables
    return float(_largest_around(g.scope, kind, g.weight, base, tables, dense, np.zeros(len(g.cards))))


def _largest(unary: npt.NDArray[Any]) -> float:
    return float(max(unary.max(initial=0.0), -unary.min(initial=0.0)))


@lean
def _whole_costs(unary, scale, out):
    """unary / scale in 32 bits; False where that is not whole."""
    for i in range(len(unary)):
        v = unary[i] / scale
        w = np.rint(v)
        if w != v:
            return False
        out[i] = np.int32(w)
    return True


def _magic(local: float) -> npt.NDArray[np.float64]:
    """``Edges.magic`` of costs that add up to so much around a variable."""
    step = 2.0 ** (np.ceil(np.log2(max(local, 1e-300))) - FLOAT_BITS)
    return np.array([1.5 * 2.0**52 * step, 8.0 * step])


def _on_grid(costs: npt.NDArray[Any], magic: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Costs rounded to exact numbers (a new array)."""
    rounded = np.add(costs, magic[0], dtype=np.float64)  # also of costs in single precision, in any version of NumPy
    rounded -= magic[0]
    return rounded


def other_unaries(model: PairModel, graph: Graph) -> npt.NDArray[Any] | None:
    """``PairModel.unary`` of a graph that differs from that of the model in its unaries alone.

    None where the model of that graph would count in other units.
    """
    unary = graph.unary
    if len(model.diagonals):
        return None
    local = _largest(unary) + model.around
    if model.unary.dtype == np.int32:
        out = np.empty(len(unary), np.int32)
        same = graph.quantum == model.scale and local / model.scale < INT32_LIMIT
        whole = same and all(_whole_costs(part, model.scale, out[some]) for some, part in in_parts(unary))
        return out if whole else None
    whole = local < INT32_LIMIT * (graph.quantum or 1.0) and graph.quantum > 0.0
    magic = model.edges.magic
    return None if whole or not np.array_equal(magic, _magic(local)) else _on_grid(unary, magic)


@lean
def _by_number(number, scope, cards, kind, weight, base, out_kind, out_weight, out_base, out_stride):
    for f in range(len(number)):
        e = number[f]
        out_kind[e] = kind[f]
        out_weight[e] = weight[f]
        out_base[e] = base[f]
        out_stride[e] = cards[scope[2 * f + 1]]


def _integral(values: npt.NDArray[Any]) -> bool:
    few = values[:1024]  # mostly tell
    return bool((few == np.rint(few)).all()) and bool((values == np.rint(values)).all())


def _arithmetic(
    unary: npt.NDArray[Any], weight: npt.NDArray[Any], tables: npt.NDArray[Any], local: float, quantum: float
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], float]:
    """Unaries, weights, magic and scale: whole numbers of 32 bits in units of the quantum (1 if there is none), where
    these are exact, else float64.  Weights are float64 either way.
    """
    scale = quantum if quantum > 0.0 else 1.0
    scaled = weight / scale
    if quantum >= 0.0 and local / scale < INT32_LIMIT and _integral(scaled) and _integral(tables):
        costs = np.empty(len(unary), np.int32)
        if all(_whole_costs(part, scale, costs[some]) for some, part in in_parts(unary)):
            return costs, scaled, np.zeros(2, np.int32), scale
    magic = _magic(local)
    return _on_grid(unary, magic), _on_grid(weight, magic), magic, 1.0


NEVER_WHOLE = -1.0  # a quantum for _arithmetic()


def pair_model(graph: Graph, integers: bool = True, context: Context | None = None) -> PairModel:
    """Arrays for the primal-dual moves from a graph of pairwise factors (``integers=False``: always float64).

    TimeUp when the time limit of the context passes before they are ready.
    """
    if graph.lattice is not None and not graph.listed:
        return _of_lattice(graph, graph.lattice, integers, context)
    g = graph.arrays
    kind, base, tables, unary, diagonal_of, diagonals = cut_tables(g, context)
    check_time(context)
    layout = _grid_layout(graph)
    used_tables = tables if len(kind) else np.zeros(1)
    around = _sum_around(g, kind, base, tables)
    local = _largest(unary) + around

    check_time(context)
    quantum = graph.quantum if integers and layout is not None else NEVER_WHOLE
    costs, weight, magic, scale = _arithmetic(unary, g.weight, used_tables, local, quantum)
    dtype = magic.dtype
    if dtype == np.float64:
        weight = np.where(kind == DENSE, g.weight, weight)

    if layout is not None:
        net: Csr | Grid
        net, node, nodes, number = layout
        count = nodes * (net.degree // 2)
    else:
        ends = graph.edges if graph.m else np.zeros((0, 2), np.int32)
        nodes, node = graph.n, np.arange(graph.n)
        net, _ = csr_from_edges(nodes, ends[:, 0], ends[:, 1])
        number, count = np.arange(graph.m), graph.m
    check_time(context)
    cards = np.zeros(nodes, np.int32)
    cards[node] = g.cards
    edges = Edges(
        kind=np.full(count, POTTS, np.uint8),
        weight=np.zeros(count, dtype),
        base=np.zeros(count, np.int64),
        stride=np.zeros(count, np.int32),
        tables=used_tables.astype(dtype),
        magic=magic,
    )
    _by_number(number, g.scope, g.cards, kind, weight, base, edges.kind, edges.weight, edges.base, edges.stride)
    return PairModel(edges, net, node, cards, cards, number, diagonal_of, diagonals, costs, scale, around)


def _of_lattice(graph: Graph, lattice: Lattice, integers: bool, context: Context | None) -> PairModel:
    """The same of an image that has no list of its edges, and gets none; nor do its factors have numbers."""
    pixels = lattice.pixels
    net, node, nodes = framed_grid(pixels)
    tables = np.array([0.0 if lattice.kind == POTTS else lattice.limit])
    around = largest_around(lattice)
    check_time(context)
    local = _largest(graph.unary) + around
    quantum = graph.quantum if integers else NEVER_WHOLE
    costs, weight, magic, scale = _arithmetic(graph.unary, pixels.weight, tables, local, quantum)
    check_time(context)
    kind, weights, heads = by_edge_number(lattice, node, nodes, weight, magic.dtype)
    cards = np.zeros(nodes, np.int32)
    cards[node] = pixels.labels
    base = np.zeros(len(kind), np.int64)  # one limit for all
    edges = Edges(kind, weights, base, heads, tables.astype(magic.dtype), magic)
    none = np.zeros(0, np.int64)
    return PairModel(edges, net, node, cards, cards, none, none, np.zeros(0), costs, scale, around)
