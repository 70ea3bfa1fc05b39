"""QPBO for models whose variables all have two labels (roof duality, graphcut/qpbo.py).

    minimise f(b) = constant + sum_i a_i b_i + sum_ij q_ij b_i b_j   over b in {0, 1}^n

    roof dual: the largest constant c for which f = c + (non-negative multiples of literals and of products of two),
    found by one maximum flow on a graph with two nodes per variable, b_i and 1 - b_i

Submodular models (q_ij <= 0, and those that become so by exchanging labels) are solved exactly by that flow.  On others
the flow gives the roof dual bound and labels that some optimum has; the rest is searched by improve moves, which fix
one unlabelled variable after the other and follow the labels that this implies.  Factors of more than two variables are
made quadratic first (graphcut/quadratise.py), with auxiliary variables.

Reference: Boros and Hammer 2002.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy.certificate import certify
from tightmap.energy.energies import energy
from tightmap.errors import OptionError
from tightmap.graph.graph import Graph
from tightmap.graphcut.binary_cut import is_one_cut, minimum_by_one_cut, settled_cut
from tightmap.graphcut.qpbo import QPBO, SubmodularCut
from tightmap.graphcut.quadratise import MAX_ARITY, Quadratic, quadratise
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime.pace import TimeUp, time_left
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.start_labels import given_labels

STEP_SECONDS = 0.1  # seconds of improve moves after which a step ends


@dataclass
class State:
    graph: Graph
    context: Context
    start: Labels
    rng: np.random.Generator
    quadratic: Quadratic | None = None
    roof: QPBO | None = None
    labels: Labels | None = None
    bound: float = -np.inf
    unlabelled: int = 0
    todo: np.ndarray | None = None  # unlabelled variables of this round of improve moves
    known: np.ndarray | None = None  # labels that the flow has decided, -1 elsewhere
    rounds: int = 0


@dataclass(frozen=True)
class QPBOSolver(Solver):
    """Options of QPBO.

    improve    rounds of improve moves on what stays unlabelled
    reduction  of factors on three and more variables: "fix" or "hocr"
    """

    improve: int = 3
    reduction: str = "fix"

    name: ClassVar[str] = "qpbo"
    summary: ClassVar[str] = "roof duality for binary models: exact when submodular, else a bound and persistent labels"
    capabilities: ClassVar[Capabilities] = Capabilities(largest_order=MAX_ARITY, binary=True, bounds=True, random=True)

    def __post_init__(self) -> None:
        if self.improve < 0:
            raise OptionError(f"qpbo: improve must be at least 0, got {self.improve}")
        if self.reduction not in ("fix", "hocr"):
            raise OptionError(f"qpbo: reduction must be 'fix' or 'hocr', got {self.reduction!r}")

    def optimal_at_once(self, graph: Graph, context: Context) -> bool:
        return is_one_cut(graph)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        labels, incumbent = given_labels(graph, init, context), context.incumbent_of(graph)
        if labels is None and incumbent.energy < np.inf:
            labels = incumbent.wide_labels  # the driver has descended already
        if labels is None:
            labels = local_minimum(graph, np.zeros(graph.n, np.int64), context)
        return State(graph, context, labels, context.rng())

    def step(self, state: State) -> Progress:
        try:
            return self._step(state)
        except TimeUp:  # in the middle of a cut, which is of no use then
            return Progress(labels=state.labels, iterations=0, late=True)

    def _step(self, state: State) -> Progress:
        if state.labels is None:
            return self._solve(state)
        if state.todo is None or len(state.todo) == 0:
            if state.rounds >= self.improve:
                return Progress(done=True)
            self._new_round(state)
        return self._improve(state)

    def _solve(self, state: State) -> Progress:
        graph = state.graph
        found = minimum_by_one_cut(graph, left=time_left(state.context))
        if found is not None:
            state.labels, state.bound = settled_cut(graph, found, state.context), found[1]
            return Progress(labels=state.labels, bound=state.bound, done=True)
        zeros, ones = np.zeros(graph.n, np.int64), np.ones(graph.n, np.int64)
        q = quadratise(graph, zeros, ones, self.reduction)
        assert q is not None  # check() refused factors that are too large
        submodular = not (q.weight > 0.0).any()
        roof = (SubmodularCut if submodular else QPBO)(q.linear, q.first, q.second, q.weight, q.constant)
        chosen = roof.solve(time_left(state.context))[: graph.n]
        state.bound = certify(graph, roof.bound + roof.error + graph.constant, q.error + roof.error, worst=False)
        if isinstance(roof, SubmodularCut):  # one cut on half the nodes, and nothing is left to improve
            state.labels = chosen.astype(np.int64)
            return Progress(labels=state.labels, bound=state.bound, done=True)
        state.quadratic, state.roof = q, roof
        state.unlabelled = int((chosen < 0).sum())
        # where the roof dual leaves ties, all 0 and all 1 are optimal on submodular models
        candidates = [np.where(chosen < 0, rest, chosen) for rest in (state.start, 0, 1)]
        state.labels = min((c.astype(np.int64) for c in candidates), key=lambda c: energy(graph, c))
        done = state.unlabelled == 0 or self.improve == 0
        return Progress(labels=state.labels, bound=state.bound, done=done)

    def _new_round(self, state: State) -> None:
        q = state.quadratic
        assert q is not None
        if state.rounds > 0 or state.roof is None:
            state.roof = QPBO(q.linear, q.first, q.second, q.weight, q.constant)
            state.roof.solve(time_left(state.context))
        state.rounds += 1
        state.known = state.roof.labels()[: state.graph.n]
        state.todo = state.rng.permutation(np.flatnonzero(state.known < 0))

    def _improve(self, state: State) -> Progress:
        assert state.labels is not None and state.todo is not None and state.roof is not None
        begin = time.perf_counter()
        labels = state.labels.copy()
        known = state.roof.labels()[: state.graph.n]
        used = 0
        for i in state.todo:
            used += 1
            if known[i] >= 0:
                continue
            state.roof.fix(int(i), int(labels[i]))
            state.roof.flow.solve(time_left(state.context))
            known = state.roof.labels()[: state.graph.n]
            labels[known >= 0] = known[known >= 0]
            if time.perf_counter() - begin > STEP_SECONDS or state.context.remaining() <= 0:
                break
        state.todo = state.todo[used:]
        if energy(state.graph, labels) <= energy(state.graph, state.labels):
            state.labels = labels
        finished = len(state.todo) == 0
        return Progress(labels=state.labels, done=finished and state.rounds >= self.improve, iterations=int(finished))

    def finish(self, state: State) -> Final:
        if state.labels is None:
            return Final(labels=state.start)
        note = f"roof duality labelled {state.graph.n - state.unlabelled} of {state.graph.n} variables"
        labels = state.labels if state.unlabelled == 0 else local_minimum(state.graph, state.labels, state.context)
        return Final(labels=labels, bound=state.bound, note=note)
