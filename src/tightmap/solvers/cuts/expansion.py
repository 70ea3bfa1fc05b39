"""alpha-expansion (Boykov, Veksler and Zabih 2001): label by label, the best move that lets any variables switch to it.

    x <- argmin E(x')  over all x' with x'_i = x_i or x'_i = alpha for every variable i,     for one alpha after another

A move is a minimum cut; it considers exponentially many labellings at once and is exact when every pair of variables
satisfies the triangle inequality (Potts, truncated linear and other metrics do),

    theta_ij(x_i, x_j) + theta_ij(alpha, alpha) <= theta_ij(x_i, alpha) + theta_ij(alpha, x_j).

The moves keep their dual variables, so that from the second sweep on a move costs only as much as there is left to
change (graphcut/moves.py).  Where a table violates the inequality the move is safely truncated: it can miss something,
but never raises the energy.  ``nonmetric="qpbo"`` goes on with moves by roof duality, which need no truncation, once
the truncated ones are exhausted.

The method stops when no label brings a strict improvement.  There are many such labellings; which one is reached
depends on the start, the order of labels and the choice among equal cuts (benchmarks/graphcuts.md compares them).  By
default a large model starts from label 0, or from the cheapest unaries where tables are no metrics, and visits labels
from the last to the first.  A small model starts from the cheapest unaries and visits labels from the first to the
last; where that was easy and the duals do not prove the result optimal, a second start from label 0 in the opposite
order costs little, and where regions of the two results fit together better, the moves go on from there.  Among equal
cuts the largest set switches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tightmap.energy.energies import energy, unary_argmin
from tightmap.errors import OptionError
from tightmap.factors.kinds import METRIC
from tightmap.graph.graph import Graph, IntArray
from tightmap.graph.pixel_costs import WORTH
from tightmap.graphcut.binary_cut import is_one_cut, minimum_by_one_cut, settled_cut
from tightmap.graphcut.expansion import Expansion as Moves
from tightmap.graphcut.fusion import fuse_proposal
from tightmap.graphcut.pairwise import PairModel, other_unaries, pair_model
from tightmap.graphcut.settled_variables import with_settled_labels, without_settled_variables
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime.memory import require
from tightmap.runtime.pace import TimeUp, check_time, time_left
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.start_labels import given_labels

STEP_SECONDS = 0.1  # seconds of moves after which a step ends
QPBO_WORK = 2_000_000  # nonmetric="auto" continues with roof duality up to this product of labels and factors
RESTART_SIZE = 200_000  # by default, only models with at most so many labels in all get a second start,
_METRIC = np.zeros(256, dtype=bool)  # by kind
_METRIC[list(METRIC)] = True
MOVES = "moves of expansion"  # what a run leaves for the next one of a plan
EASY = 8  # and only when the first one needed fewer than one augmenting path for every EASY variables


def first_labels(graph: Graph, init: Init, context: Context) -> Labels:
    """Labels to start from: the given ones, rounded relaxed vectors, or label 0."""
    labels = given_labels(graph, init, context)
    return np.zeros(graph.n, dtype=np.int64) if labels is None else labels


def is_metric_kind(graph: Graph) -> bool:
    """Are all factors of kinds that are metrics whatever their parameters are (weights of at least 0)?"""
    if graph.lattice is not None:
        return bool(_METRIC[graph.lattice.kind]) and graph.differences
    g = graph.arrays
    return bool(_METRIC[g.kind].all()) and not bool((g.weight < 0.0).any())


def pairs_of(graph: Graph, context: Context) -> PairModel:
    """The model for cuts; in a plan all but its unaries is made once."""
    if not graph.planned:
        return pair_model(graph, context=context)
    first = graph.kept_structure("pairs of expansion", lambda: pair_model(graph, context=context))
    unary = other_unaries(first, graph)
    return pair_model(graph, context=context) if unary is None else replace(first, unary=unary)


def label_order(graph: Graph, order: str, context: Context) -> IntArray:
    labels = np.arange(graph.max_labels)
    if order == "random":
        return context.rng().permutation(labels)
    return labels if order == "ascending" else labels[::-1]


def dual_bytes(graph: Graph) -> float:
    """What the kept duals take at most."""
    if graph.uniform:
        spans = float(graph.m) * graph.max_labels
    else:
        cards = graph.arrays.cards[graph.arrays.scope]
        spans = float(np.maximum(cards[::2], cards[1::2]).sum(dtype=np.float64))
    return 8.0 * (spans + 2.0 * len(graph.unary)) * 1.2 + 100.0 * (graph.n + graph.m)


@dataclass
class State:
    graph: Graph
    context: Context
    moves: Moves
    order: IntArray
    position: int = 0
    changed: int = 0  # variables that switched in this sweep
    news: bool = True  # the labels are not the ones that were last reported
    labels: Labels | None = None  # once the cuts are done and moves by roof duality go on
    fused: int = 0  # moves by roof duality that lowered the energy
    quiet: int = 0  # moves by roof duality in a row that did not
    done: bool = False
    restart: bool | None = False  # a second start is still to come (None: if the first one was easy)
    first: Labels | None = None  # where the first start ended
    first_cost: float = 0.0
    bound: tuple[float, float] | None = None  # of the duals, once evaluated (fastpd)
    planned: bool = False  # network and duals are left for the next run of a plan


@dataclass
class OneCut:
    """A model of two labels whose minimum is a single move: all variables may switch from 0 to 1."""

    graph: Graph
    context: Context
    labels: Labels | None = None


@dataclass(frozen=True)
class Expansion(Solver):
    """Options of alpha-expansion.

    order      of the labels in a sweep: "descending", "ascending", "random", or "auto" (ascending where a second start
               in the opposite order may come, else descending)
    largest    among equal cuts switch the most variables instead of the fewest
    nonmetric  where a table is no metric: "truncate", "qpbo" (after that, moves by roof duality), or "auto" (qpbo on
               models that are small enough for it)
    restart    a second start when none is given, fused with the first; None: on small models whose cuts are easy
    """

    order: str = "auto"
    largest: bool = True
    nonmetric: str = "auto"
    restart: bool | None = None

    name: ClassVar[str] = "expansion"
    summary: ClassVar[str] = "alpha-expansion by graph cuts that keep their flow; fast and strong on Potts and metrics"
    capabilities: ClassVar[Capabilities] = Capabilities(largest_order=2, metric=True)

    def __post_init__(self) -> None:
        if self.order not in ("auto", "descending", "ascending", "random"):
            raise OptionError(
                f"{self.name}: order must be 'auto', 'descending', 'ascending' or 'random', got {self.order!r}"
            )
        if self.nonmetric not in ("auto", "truncate", "qpbo"):
            raise OptionError(f"{self.name}: nonmetric must be 'auto', 'truncate' or 'qpbo', got {self.nonmetric!r}")

    def optimal_at_once(self, graph: Graph, context: Context) -> bool:
        return is_one_cut(graph)

    def start(self, graph: Graph, init: Init, context: Context) -> State | OneCut | None:
        if is_one_cut(graph):
            return OneCut(graph, context)
        require(dual_bytes(graph), f"{self.name}: the kept flow of {graph.m} factors")
        if graph.planned and init.labels is not None:
            return self._next_of_plan(graph, init.labels, context)
        try:
            model = graph.kept("without settled variables", lambda: without_settled_variables(pairs_of(graph, context)))
            check_time(context)
        except TimeUp:
            return None
        given = init.labels is not None or init.relaxed is not None
        small = len(graph.unary) <= RESTART_SIZE
        restart = self.restart if not given and (small or self.restart) else False
        twice = restart is not False
        moves = Moves(model, self.largest, compact=not twice and len(graph.unary) >= WORTH)
        if not given and (twice or not is_metric_kind(graph)):
            moves.begin(unary_argmin(graph))
        else:
            moves.begin(first_labels(graph, init, context))
        if not twice:
            moves.forget_unaries()
        name = self.order if self.order != "auto" else "ascending" if twice else "descending"
        order = label_order(graph, name, context)
        return State(graph, context, moves, order, restart=restart)

    def _next_of_plan(self, graph: Graph, labels: Labels, context: Context) -> State | None:
        """As ``start`` from given labels, with the network and the duals of the last run where they are of use.

        Settled variables stay in the network, as they are others every time; from their labels no move takes them away.
        """
        moves: Moves | None = graph.take(MOVES)
        if moves is not None and moves.largest == self.largest and moves.renew(graph):
            moves.go_on(with_settled_labels(moves.model, labels))
        else:
            try:
                moves = Moves(pairs_of(graph, context), self.largest)
                check_time(context)
            except TimeUp:
                return None
            moves.begin(with_settled_labels(moves.model, labels))
        order = label_order(graph, "descending" if self.order == "auto" else self.order, context)
        return State(graph, context, moves, order, planned=True)

    def step(self, state: State | OneCut | None) -> Progress:
        """Moves until a sweep ends or a tenth of a second is over."""
        if state is None:
            return Progress(iterations=0)
        if isinstance(state, OneCut):
            try:
                found = minimum_by_one_cut(state.graph, self.largest, time_left(state.context))
            except TimeUp:
                return Progress(iterations=0, late=True)
            assert found is not None  # is_one_cut() said so
            state.labels = settled_cut(state.graph, found, state.context)
            return Progress(labels=state.labels, done=True)
        if state.labels is not None:
            return self._roof_step(state)
        begin = time.perf_counter()
        while True:
            try:
                changed = state.moves.move(int(state.order[state.position]), time_left(state.context))
            except TimeUp:
                state.planned = False  # the next run could not go on from half a move
                return Progress(labels=self._news(state), iterations=0, late=True)
            state.changed += changed
            state.news |= changed > 0
            state.position += 1
            if state.position == len(state.order):
                break
            if time.perf_counter() - begin > STEP_SECONDS or state.context.remaining() <= 0:
                return Progress(labels=self._news(state), iterations=0)
        labels = self._news(state)
        if state.changed == 0:
            if self._goes_on(state):
                pass
            elif self._wants_roof_duality(state):
                state.labels = state.moves.labels
            else:
                state.done = True
        state.position, state.changed = 0, 0
        return Progress(labels=labels, done=state.done)

    def _news(self, state: State) -> Labels | None:
        """The labels, if the driver has not seen them yet."""
        if not state.news:
            return None
        state.news = False
        return state.moves.labels

    def _goes_on(self, state: State) -> bool:
        """Begin the second start after the first; after the second go on if regions of both together are better."""
        if state.restart is None:
            state.restart = EASY * state.moves.paths < state.graph.n and not state.moves.proven()
        if state.restart:
            state.restart, state.first, state.first_cost = False, state.moves.labels, state.moves.cost
            state.order = state.order[::-1]
            state.moves.begin(np.zeros(state.graph.n, np.int64))
            state.news = True
            return True
        if state.first is None:
            return False
        labels = state.moves.labels
        better, other = labels, state.first
        state.first = None
        if state.first_cost < state.moves.cost:
            better, other = other, better
        fused = better.copy()
        if component_fusion(state.graph.arrays, fused, other) > 0.0:
            state.moves.begin(fused)
            state.news = True
            return True
        if better is not labels and state.moves.truncated:
            state.moves.begin(better)  # roof duality goes on from there
        return False

    def _wants_roof_duality(self, state: State) -> bool:
        if state.moves.truncated == 0 or self.nonmetric == "truncate":
            return False
        return self.nonmetric == "qpbo" or state.graph.m * state.graph.max_labels <= QPBO_WORK

    def _roof_step(self, state: State) -> Progress:
        """One sweep of moves by roof duality (unlabelled variables keep their label)."""
        assert state.labels is not None
        begin = time.perf_counter()
        graph = state.graph
        cards = graph.arrays.cards
        while state.quiet < len(state.order):
            label = int(state.order[state.position])
            proposal = np.where(cards > label, label, state.labels)
            labels = fuse_proposal(graph, state.labels, proposal, context=state.context)
            if energy(graph, labels) < energy(graph, state.labels):
                state.labels, state.quiet = labels, 0
                state.fused += 1
            else:
                state.quiet += 1
            state.position = (state.position + 1) % len(state.order)
            if state.context.remaining() <= 0:  # the last move may have been cut short
                return Progress(labels=state.labels, iterations=0)
            if state.position == 0:
                return Progress(labels=state.labels, done=state.quiet >= len(state.order))
            if time.perf_counter() - begin > STEP_SECONDS:
                return Progress(labels=state.labels, iterations=0)
        return Progress(labels=state.labels, done=True)

    def finish(self, state: State | OneCut | None) -> Final:
        if state is None:
            return Final()
        if isinstance(state, OneCut):
            return Final(labels=state.labels, note="two labels, differences of which cost: one cut is the minimum")
        labels = state.labels if state.labels is not None else state.moves.labels
        if state.moves.truncated:  # a truncated move can overlook even the change of one variable
            labels = local_minimum(state.graph, labels, state.context)
        if state.planned and state.moves.truncated == 0:  # what was truncated depends on the duals, so these would tell
            state.graph.leave(MOVES, state.moves)
        if state.moves.truncated == 0:
            note = "all moves were exact: every table met the triangle inequality at every labelling on the way"
        else:
            note = f"not a metric: {state.moves.truncated} arcs of moves were truncated safely"
            if state.labels is not None:
                note += f", then roof duality (QPBO) found {state.fused} more moves"
        return Final(labels=labels, note=note)
