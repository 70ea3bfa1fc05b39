"""What can be settled before any method begins, and the smaller model that is left.

    labels       that no feasible labelling can have are left out (hard constraints, propagated to a fixed point), and
                 so are those that another one can stand for at no greater cost (solvers/exact/dominance.py)
    variables    that follow from another one, as by an equality or a fixed distance, are merged into it
    variables    with at most two neighbours are eliminated:  c(x_j, x_k) = min over x_i of all that x_i takes part in

The network of the exact search does all of this in whole numbers (solvers/exact/network.py), which become the costs of
the smaller model:

    E(complete(y))  =  base + (constant + k E'(y)) / scale      for every labelling y of what is left,

where k is the grain of whole costs, else the scale, a power of two, so that E' has the unit of E.  This holds up to
what converting to whole numbers cuts off; it only cuts downwards, so a lower bound of E' gives one of E.  Costs that
reach the energy of the best labelling at hand cannot be part of a better one; where the model has hard constraints they
become hard.

Messages, moves and searches all gain: a variable that follows from another one can only change together with it, which
single changes cannot do, and bounds are never below those of the larger model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import Certified, proves_infeasible
from tightmap.errors import ModelError
from tightmap.graph.graph import Graph
from tightmap.graph.stencil import grid_width
from tightmap.model.model import Model
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.feasibility.engine import Feasibility
from tightmap.runtime import clock
from tightmap.runtime.pace import TimeUp
from tightmap.solvers.exact.dominance import dominated_labels
from tightmap.solvers.exact.elimination import eliminate_low_degrees
from tightmap.solvers.exact.functional import merge_functional
from tightmap.solvers.exact.kept import KeptLabels
from tightmap.solvers.exact.network import Network, Table, build_network, table_entries

VARIABLES = 20_000  # of larger models too much is done in Python
FACTORS = 50_000
ENTRIES = 5_000_000  # of all tables
DEGREE = 2  # variables with at most so many neighbours are eliminated ...
LARGEST = 4096  # ... where that makes a table of at most so many entries
FEW = 0.1  # part of the variables that has to look as if it could go before anything is tried
WORTH = 0.9  # what is left has at most this part of the variables or labels; else the model stays as it is
PART = 0.05  # of the time that is left
DIGITS = 53  # of a float


@dataclass(frozen=True)
class Presolved:
    """The smaller model and the way back."""

    outer: Graph
    graph: Graph
    network: Network
    variables: Labels  # of the outer graph, for each one of the smaller model
    instead: Labels  # (labels of the outer graph,) the label that stands for it: itself, if it is not dominated
    report: str  # what has gone

    def outward(self, labels: Labels) -> Labels:
        """Labels of the outer graph: what was settled or merged or eliminated follows."""
        inner = np.zeros(self.outer.n, np.int64)
        inner[self.variables] = self.graph.lift(labels)
        self.network.complete(inner)
        return self.network.outward(inner)

    def inward(self, labels: Labels) -> Labels | None:
        """The labels of what is left; None where one of them was left out."""
        inner = self.network.inward(self.instead[self.outer.arrays.offset[:-1] + labels])
        return None if inner is None else self.graph.restrict(inner[self.variables])

    def user_energy(self, value: float) -> float:
        """The energy, as the user counts it, of labels of the smaller model that cost this there."""
        if proves_infeasible(self.graph, value):
            return math.inf
        return float(self.outer.user_energy(self.bound(value)))

    def bound(self, bound: float) -> Certified:
        """What a bound of the smaller model proves for the outer graph."""
        network = self.network
        if proves_infeasible(self.graph, bound) or bound == math.inf:
            return network.bound(network.upper)  # nothing costs less than the labelling that was at hand
        if bound == -math.inf:
            return Certified(bound)
        lower = self.graph.user_bound(bound)
        if network.whole:  # as are all energies of the smaller model
            return network.bound(math.ceil(lower) * network.grain)
        outer = network.bound(math.floor(lower * network.scale))
        return Certified(outer, outer.error + math.ldexp(getattr(bound, "error", 0.0), -self.graph.power))


def presolve(graph: Graph, incumbent: Incumbent, context: Context) -> Presolved | None:
    """The smaller model; None where it would not be much smaller.  What is proven on the way the incumbent is told."""
    if not _promising(graph):
        return None
    if context.deadline is not None:
        context = replace(context, deadline=clock.now() + PART * max(0.0, context.remaining()))
    try:
        return _reduce(graph, incumbent, context)
    except (TimeUp, ModelError):  # no time for it, or too little memory: the methods do without
        return None


def _promising(graph: Graph) -> bool:
    """Whether enough variables might go, as far as a glance at the graph tells; images keep their regular form."""
    if graph.lattice is not None or graph.differences or graph.m == 0:
        return False
    if graph.n > VARIABLES or graph.m > FACTORS or table_entries(graph).sum() > ENTRIES:
        return False
    if graph.order <= 2 and grid_width(graph) is not None:
        return False
    if graph.hard > 0.0 or graph.max_labels > 2:
        return True
    g = graph.arrays
    others = np.diff(g.scope_start)[g.adj_factor] - 1
    near = np.concatenate(([0], np.cumsum(others)))
    return bool((near[g.adj_start[1:]] - near[g.adj_start[:-1]] <= DEGREE).mean() >= FEW)


def _reduce(graph: Graph, incumbent: Incumbent, context: Context) -> Presolved | None:
    kept = None
    if graph.hard > 0.0:
        problem = Feasibility(graph, incumbent.wide_labels)
        if not problem.propagate():
            return None  # the search for a feasible labelling will say so
        kept = KeptLabels(graph.arrays.offset, problem.alive)
    upper = min(incumbent.energy, graph.hopeless)
    network = build_network(graph, upper, context, kept)
    stands = dominated_labels(network, context)
    first = graph.arrays.offset[:-1]
    instead = np.arange(len(graph.unary)) - np.repeat(first, graph.arrays.cards)
    dominated = 0
    if any((own != np.arange(len(own))).any() for own in stands):
        alive = np.ones(len(instead), np.bool_) if kept is None else kept.alive.copy()
        for i, own in enumerate(stands):
            labels = np.arange(len(own)) if kept is None else kept.labels[i]
            instead[first[i] + labels] = labels[own]
            alive[first[i] + labels[own != np.arange(len(own))]] = False
            dominated += int((own != np.arange(len(own))).sum())
        kept = KeptLabels(graph.arrays.offset, alive)
        network = build_network(graph, upper, context, kept)
    fixed = sum(card == 1 for card in network.cards)
    merged = merge_functional(network, context)
    eliminate_low_degrees(network, DEGREE, LARGEST, context)
    left = [i for i in range(graph.n) if i not in network.gone and network.cards[i] > 1]
    number = sum(network.cards[i] for i in left)
    if len(left) > WORTH * graph.n and number > WORTH * len(graph.unary):
        return None
    parts = [
        (dominated, "labels that others stand for"),
        (fixed, "variables with one label left"),
        (merged, "that follow from another one"),
        (graph.n - len(left) - fixed - merged, f"with at most {DEGREE} neighbours"),
    ]
    gone = ", ".join(f"{count} {what}" for count, what in parts if count > 0)
    report = f"presolved: {len(left)} of {graph.n} variables and {number} of {len(graph.unary)} labels are left"
    report += f" (gone: {gone})" if gone else ""
    inner = _model(graph, network, left).graph()
    return Presolved(graph, inner, network, np.array(left, np.int64), instead, report)


def _model(graph: Graph, network: Network, left: list[int]) -> Model:
    """The network as a model; costs that have more digits than a float are rounded downwards."""
    forbidden = network.upper - network.constant

    def costs(tables: Table) -> npt.NDArray[np.float64]:
        whole = tables // network.grain if network.whole else tables
        excess = max(0, int(whole.max(initial=0)).bit_length() - DIGITS)
        floats = ((whole >> excess) << excess).astype(np.float64)
        if not network.whole:
            floats /= network.scale
        return np.where(tables >= forbidden, np.inf, floats) if graph.hard > 0.0 else floats

    place = {i: k for k, i in enumerate(left)}
    model = Model([network.cards[i] for i in left])
    if left:
        model.add_unaries([costs(network.unary[i]) for i in left])
    shapes: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for scope, table in network.functions.items():
        shapes.setdefault(table.shape, []).append(scope)
    for shape, scopes in shapes.items():
        tables = np.concatenate([network.functions[scope].reshape(1, *shape) for scope in scopes])
        model.add_factors([[place[i] for i in scope] for scope in scopes], costs(tables))
    return model
