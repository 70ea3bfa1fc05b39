"""The minimum of a model of two labels without a frustrated pair, by one cut straight from its canonical arrays.

    E(b) = sum_i theta_i(0) + sum_i a_i b_i + sum_ij c_ij [b_i != b_j] + constants,

    c_ij = (theta(0, 1) + theta(1, 0) - theta(0, 0) - theta(1, 1)) / 2 >= 0    for every pair, which adds to its ends
    a_i += (theta(1, 0) + theta(1, 1) - theta(0, 0) - theta(0, 1)) / 2,        a_j += the same, ends exchanged,

so a pair is an arc of capacity c in both directions and a variable hangs on one terminal; b = 1 on the side of the
source.  Where neighbours have the same few distances everywhere, as on grids of any dimension, there is no list of
arcs.  Nothing is made between the model and its network: for a large image that would take longer than the flow.

Coefficients are whole numbers after multiplication with a power of two, so that the flow is exact; what rounding may
have changed is subtracted from the bound (qpbo.py).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT, Certified, certify
from tightmap.factors.pairs import plain_cost
from tightmap.graph.graph import FloatArray, Graph, IntArray, PairArrays
from tightmap.graph.lattice import Lattice
from tightmap.graph.pixel_costs import cost_at
from tightmap.graph.stencil import distinct_steps
from tightmap.graphcut.flow import Flow
from tightmap.graphcut.network import Csr, Grid, csr_from_edges
from tightmap.graphcut.qpbo import GRID_FILL, MOST_STEPS, unit
from tightmap.moves.context import Context
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime.compiled import lean
from tightmap.runtime.memory import require
from tightmap.runtime.pace import EVER

LARGEST, WHOLE, SUM, REST, SIZE = 0, 1, 2, 3, 4  # what is known of all coefficients before any is rounded
ALL_BITS = 62  # for the sum of all coefficients, each of which is in the network once
STEP = 2.0  # where costs are whole numbers, coefficients are multiples of its reciprocal


@lean
def _note(known, coefficient):
    known[LARGEST] = max(known[LARGEST], abs(coefficient))
    if 2.0 * coefficient != np.rint(2.0 * coefficient):
        known[WHOLE] = 0.0


@lean
def _add(known, cost):
    """One more term of the constant; the part that rounding takes from a sum is kept beside it (Neumaier)."""
    total = known[SUM] + cost
    if abs(known[SUM]) >= abs(cost):
        known[REST] += (known[SUM] - total) + cost
    else:
        known[REST] += (cost - total) + known[SUM]
    known[SUM] = total
    known[SIZE] += abs(cost)


@lean
def _survey_pixels(g, known):
    for p in range(g.height * g.width):
        low = cost_at(g.unary, g.single, 2 * p)
        a = cost_at(g.unary, g.single, 2 * p + 1) - low
        _note(known, a)
        _add(known, low)
        known[SIZE] += abs(a)
    for e in range(len(g.weight)):
        _note(known, g.weight[e] * g.profile[1])


@lean
def _fill_pixels(g, scale, margin, cap, term):
    """Capacities and terminals of a lattice."""
    W, steps = g.width, len(g.down)
    degree = 2 * steps
    for p in range(g.height * W):
        difference = cost_at(g.unary, g.single, 2 * p) - cost_at(g.unary, g.single, 2 * p + 1)
        term[margin + p] = np.int64(np.rint(difference * scale))
    for k in range(steps):
        dr, dc = g.down[k], g.right[k]
        first = max(0, -dc)
        shift = dr * W + dc
        c = np.int64(np.rint(g.weight[0] * g.profile[1] * scale))
        for r in range(g.height - dr):
            e = g.first[k] + r * (W - abs(dc)) - first
            for column in range(first, W - max(0, dc)):
                if g.listed:
                    c = np.int64(np.rint(g.weight[e + column] * g.profile[1] * scale))
                p = margin + r * W + column
                cap[p * degree + 2 * k] = c
                cap[(p + shift) * degree + 2 * k + 1] = c


@lean
def _survey_pairs(g, linear, known):
    """False where a pair is frustrated: then one cut is not enough."""
    kind, weight, param, params, scope = g.kind, g.weight, g.param, g.params, g.scope
    for f in range(len(kind)):
        i, j = scope[2 * f], scope[2 * f + 1]
        e00 = plain_cost(kind[f], weight[f], params, param[f], 2, 0, 0)
        e01 = plain_cost(kind[f], weight[f], params, param[f], 2, 0, 1)
        e10 = plain_cost(kind[f], weight[f], params, param[f], 2, 1, 0)
        e11 = plain_cost(kind[f], weight[f], params, param[f], 2, 1, 1)
        c = 0.5 * ((e01 + e10) - (e00 + e11))
        if c < 0.0:
            return False
        linear[i] += 0.5 * ((e10 - e00) + (e11 - e01))
        linear[j] += 0.5 * ((e01 - e00) + (e11 - e10))
        _note(known, c)
        if e00 != 0.0:
            _add(known, e00)
        if e00 != 0.0 or e11 != 0.0 or e01 != e10:  # otherwise nothing has been rounded
            known[SIZE] += abs(e00) + abs(e01) + abs(e10) + abs(e11)
    for i in range(len(linear)):
        low = g.unary[2 * i]
        linear[i] += g.unary[2 * i + 1] - low
        _note(known, linear[i])
        _add(known, low)
        known[SIZE] += abs(linear[i]) + abs(g.unary[2 * i + 1])
    return True


@lean
def _capacity(g, f, scale):
    """Of the arcs of factor f."""
    kind, w, p = g.kind[f], g.weight[f], g.param[f]
    apart = plain_cost(kind, w, g.params, p, 2, 0, 1) + plain_cost(kind, w, g.params, p, 2, 1, 0)
    together = plain_cost(kind, w, g.params, p, 2, 0, 0) + plain_cost(kind, w, g.params, p, 2, 1, 1)
    return np.int64(np.rint(0.5 * (apart - together) * scale))


@lean
def _fill_terminals(linear, scale, margin, term):
    for i in range(len(linear)):
        term[margin + i] = np.int64(np.rint(-linear[i] * scale))


@lean
def _fill_steps(g, scale, steps, margin, cap):
    """Capacities where neighbours are at fixed distances."""
    degree = 2 * len(steps)
    for f in range(len(g.kind)):
        i, j = np.int64(g.scope[2 * f]), np.int64(g.scope[2 * f + 1])
        c = _capacity(g, f, scale)
        k = 0
        while steps[k] != j - i:
            k += 1
        cap[(margin + i) * degree + 2 * k] += c
        cap[(margin + j) * degree + 2 * k + 1] += c


@lean
def _fill_list(g, scale, forward, sisters, cap):
    """Capacities of a network with lists of neighbours."""
    for f in range(len(g.kind)):
        c = _capacity(g, f, scale)
        cap[forward[f]] = c
        cap[sisters[forward[f]]] = c


@lean
def _taken(term):
    """What the function is where every variable that gains by itself is 1."""
    total = np.int64(0)
    for p in range(len(term)):
        if term[p] > 0:
            total -= term[p]
    return total


def network_bytes(graph: Graph) -> float:
    """What the network and its search trees take, about, with lists of neighbours where these may be needed."""
    return (16.0 if graph.lattice is not None else 44.0) * graph.m + 50.0 * graph.n


def is_one_cut(graph: Graph) -> bool:
    """Whether the structure alone says that one cut finds the minimum: two labels, and costs of their differences."""
    return graph.m > 0 and graph.max_labels == 2 and graph.order == 2 and graph.hard == 0.0 and graph.differences


class _Network(NamedTuple):
    scale: float  # of all coefficients, which makes them whole
    error: float  # how much rounding them may change an energy
    net: Csr | Grid
    cap: npt.NDArray[np.int64]
    term: npt.NDArray[np.int64]
    first: int  # node of variable 0


def _grid(steps: IntArray) -> Grid:
    return Grid(np.stack((steps, -steps), axis=1).reshape(-1), 2 * len(steps))


def _of_lattice(lattice: Lattice, known: FloatArray) -> _Network | None:
    g = lattice.pixels
    if float(g.weight.min()) * g.profile[1] < 0.0:
        return None
    _survey_pixels(g, known)
    scale, error = unit(float(known[LARGEST]), bool(known[WHOLE]), lattice.n, lattice.edges, STEP, ALL_BITS)
    net, margin = _grid(g.down * g.width + g.right), g.width + 1
    cap, term = _room(net, lattice.n + 2 * margin)
    _fill_pixels(g, scale, margin, cap, term)
    return _Network(scale, error, net, cap, term, margin)


def _room(net: Csr | Grid, nodes: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    arcs = nodes * net.degree if isinstance(net, Grid) else len(net.heads)
    return np.zeros(arcs, np.int64), np.zeros(nodes, np.int64)


def _of_pairs(g: PairArrays, known: FloatArray) -> _Network | None:
    n, m = len(g.cards), len(g.kind)
    linear = np.zeros(n)
    if not _survey_pairs(g, linear, known):
        return None
    scale, error = unit(float(known[LARGEST]), bool(known[WHOLE]), n, m, STEP, ALL_BITS)
    room = np.zeros(MOST_STEPS, np.int64)
    steps = room[: max(0, distinct_steps(g.scope, room))]
    net: Csr | Grid
    if len(steps) and m > GRID_FILL * n * len(steps):
        net, margin = _grid(steps), int(steps.max())
        cap, term = _room(net, n + 2 * margin)
        _fill_steps(g, scale, steps, margin, cap)
    else:
        net, forward = csr_from_edges(n, g.scope[0::2], g.scope[1::2])
        margin = 0
        cap, term = _room(net, n)
        _fill_list(g, scale, forward, net.sisters, cap)
    _fill_terminals(linear, scale, margin, term)
    return _Network(scale, error, net, cap, term, margin)


def minimum_by_one_cut(graph: Graph, largest: bool = False, left: float = EVER) -> tuple[IntArray, Certified] | None:
    """A labelling of least energy, the one with the fewest ones (or the most), and the bound that proves it.

    None where the model has other labels or factors, or a frustrated pair.  TimeUp after ``left`` seconds of flow.
    """
    if graph.m == 0 or graph.max_labels != 2 or graph.order != 2:
        return None
    require(network_bytes(graph), f"the network of {graph.n} variables and {graph.m} pairs")
    known = np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    if graph.lattice is not None:
        made = _of_lattice(graph.lattice, known)
    else:
        made = _of_pairs(graph.arrays, known) if isinstance(graph.arrays, PairArrays) else None
    if made is None:
        return None
    taken = int(_taken(made.term))
    flow = Flow(made.net, made.cap, made.term, 0, np.int64(0))
    value = int(flow.solve(left))
    # a coefficient is a sum of numbers, one for each neighbour and four more; the constant is a compensated sum
    error = made.error + UNIT * (_most_neighbours(made.net) + 4) * float(known[SIZE])
    raw = float(known[SUM] + known[REST]) + (taken + value) / made.scale
    labels = flow.source_side(largest)[made.first : made.first + graph.n].astype(np.int64)
    return labels, certify(graph, raw + graph.constant, error, worst=False)


def settled_cut(graph: Graph, cut: tuple[IntArray, Certified], context: Context) -> IntArray:
    """The local minimum below the labels of that cut, which nearly always are one.

    Capacities are whole numbers: beside far larger costs the cut may have overlooked a small one, so small that the
    bound may seem to meet the energy.
    """
    return local_minimum(graph, cut[0], context)


def _most_neighbours(net: Csr | Grid) -> int:
    return net.degree if isinstance(net, Grid) else int(np.diff(net.start).max())
