"""multicut: models whose labels are only names, as segmentations by boundaries and clusterings.

    minimise over partitions   E = sum of w_uv over pairs in different parts,    w of both signs   (problem.py)

    v -> part A with the largest  s(v, A) = sum of w_uv over u in A;     E >= min c y  over cycle inequalities

Other methods see n labels that are all alike: to rename two parts so that they can join takes as many changes as one
of them has variables, and their relaxation lets every variable take every label at 1/n, so that its bound is the sum of
all negative weights.  Here labels are given to parts at the very end.

    search      single moves, joins of parts, and shakes of small regions (moving.py)
    bound       the linear relaxation by cycle inequalities (cycles.py)
    proof       pairs whose reduced cost exceeds the gap are fixed; then branch and bound on single pairs (tree.py)

They take turns, and the search goes on from what the relaxation is rounded to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy.certificate import certify
from tightmap.energy.energies import energy
from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.runtime.pace import SLICE, time_left
from tightmap.runtime.random_numbers import start_state
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.multicut.moving import GAIN, Around, Walk, around, begin_from, descend, new_walk, shakes
from tightmap.solvers.multicut.problem import IntArray, SignedGraph, labelling, signed_graph, suits
from tightmap.solvers.multicut.tree import Tree
from tightmap.solvers.start_labels import given_labels

BATCH = 300  # shakes of one step where variables have DEGREE neighbours, fewer where they have more
DEGREE = 8.0
RARELY = 5  # after a cycle of warmth that brought nothing, only one step in so many is for the search
WARM = 0.3  # of the typical weight: warmth at the beginning of a cycle, which falls to nothing
CYCLE = 40  # shakes per variable of the first cycle; later ones are twice as long each, up to
LONGEST_CYCLE = 5000


@dataclass
class State:
    graph: Graph
    context: Context
    problem: SignedGraph
    around: Around
    walk: Walk
    tree: Tree
    incumbent: Incumbent
    least: float  # gain that is no rounding
    typical: float
    settled: bool = False  # the first descent is over
    value: float = np.inf  # of the walk, by its own account
    best_part: IntArray | None = None
    best_value: float = np.inf  # of that partition
    made: int = 0  # shakes
    cycle: int = 0  # where in the present cycle of warmth
    length: int = 0  # of that cycle
    cycles: int = 0
    before: float = np.inf  # best value when the present cycle began
    fresh: bool = True  # the cycle before has found something better
    turn: int = 0


@dataclass(frozen=True)
class Multicut(Solver):
    """Options of the search over partitions.

    shakes  regions that are taken apart and settled anew
    nodes   of branch and bound, at most
    """

    shakes: int = 100_000
    nodes: int = 1000

    name: ClassVar[str] = "multicut"
    summary: ClassVar[str] = "partitions, where labels are only names: moves, joins, cycle inequalities, proof"
    capabilities: ClassVar[Capabilities] = Capabilities(
        largest_order=3, names_only=True, bounds=True, exact=True, random=True
    )

    def __post_init__(self) -> None:
        if self.shakes < 0 or self.nodes < 0:
            raise OptionError("multicut: shakes and nodes must be at least 0")

    def check(self, graph: Graph) -> None:
        super().check(graph)
        if graph.m and not suits(graph):
            raise ModelError(
                f"method {self.name!r} takes models whose labels are only names: no unary costs, the same number of "
                "labels everywhere, Potts factors and label patterns of at most three variables; try method 'auto'"
            )

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        problem = signed_graph(graph)
        incumbent = context.incumbent_of(graph)
        walk = new_walk(problem, start_state(context.seed))
        labels = given_labels(graph, init, context)
        size = float(np.abs(problem.weight).sum() + np.abs(problem.extra).sum())
        state = State(
            graph, context, problem, around(problem), walk, Tree(problem), incumbent, GAIN * size,
            size / max(1, len(problem.pairs) + len(problem.extra)),
        )  # fmt: skip
        if labels is not None:
            incumbent.offer(labels)
        self._begin(state, np.arange(problem.n))
        return state

    def _begin(self, state: State, part: IntArray) -> None:
        _, part = np.unique(part, return_inverse=True)
        begin_from(state.walk, part.astype(np.int64))
        state.value = state.problem.value(part)

    def adopt(self, state: State, labels: Labels) -> None:
        """Another method found these labels: the partition they are, where it is better."""
        if energy(state.graph, labels) < state.incumbent.energy:
            state.incumbent.offer(labels)
            self._begin(state, labels)
            state.settled = False

    def _offer(self, state: State) -> None:
        """Keep the walk's partition if it is the best one."""
        part = state.walk.part[: state.problem.n]
        if state.value < state.best_value - state.least:
            state.value = state.best_value = state.problem.value(part)
            state.best_part = part.copy()
            state.incumbent.offer(labelling(state.problem, state.best_part))

    def step(self, state: State) -> Progress:
        if state.graph.m == 0:
            return Progress(labels=np.zeros(state.graph.n, np.int64), bound=state.graph.constant, done=True)
        state.turn += 1
        complete = True
        if not state.settled:
            saved, state.settled = descend(state.around, state.walk, state.least, time_left(state.context, SLICE))
            state.value -= saved
            complete = bool(state.settled)
            self._offer(state)
        elif state.made < self.shakes and state.turn % (2 if state.fresh else RARELY) == 0:
            self._shake(state)
        elif self._open(state):
            rounded = state.tree.advance(self._gap_to(state), time_left(state.context, 4 * SLICE))
            if rounded is not None:
                self._try(state, rounded)
        elif state.made < self.shakes:
            self._shake(state)
        bound = self._bound(state)
        over = state.made >= self.shakes and not self._open(state)
        done = state.incumbent.proven_by(bound) or over
        labels = state.incumbent.wide_labels if state.incumbent.energy < np.inf else None
        known = state.incumbent.energy if labels is not None else None
        return Progress(labels=labels, energy=known, bound=bound, done=done, iterations=int(complete))

    def _open(self, state: State) -> bool:
        return not state.tree.done and state.tree.nodes <= self.nodes

    def _gap_to(self, state: State) -> float:
        """The value, without the constant, that a partition has to be below to be of any use."""
        return state.incumbent.energy - state.graph.constant - state.problem.constant

    def _bound(self, state: State) -> float:
        raw, error = state.tree.bound()
        raw += state.problem.constant + state.graph.constant
        return certify(state.graph, raw, error + state.problem.error)

    def _shake(self, state: State) -> None:
        n = state.problem.n
        if state.cycle >= state.length:  # a new cycle, from the best partition or from where the last one ended
            state.length = min(CYCLE * 2**state.cycles, LONGEST_CYCLE) * n
            state.cycles += 1
            state.fresh = state.best_value < state.before
            state.before = state.best_value
            state.cycle = 0
            if state.best_part is not None and state.cycles % 2 == 0:
                self._begin(state, state.best_part)
        warmth = WARM * state.typical * (1.0 - state.cycle / state.length) ** 2
        batch = int((BATCH + n // 8) * min(1.0, DEGREE * n / (2.0 * len(state.problem.pairs))))
        many = min(max(batch, 10), self.shakes - state.made)
        made, saved = shakes(state.around, state.walk, state.least, warmth, many, time_left(state.context, SLICE))
        state.made += made
        state.cycle += made
        state.value -= saved
        self._offer(state)

    def _try(self, state: State, part: IntArray) -> None:
        """Descend from a rounded point of the relaxation, and go on from there if that is the best so far."""
        before, value = state.walk.part[: state.problem.n].copy(), state.value
        self._begin(state, part)
        saved, _ = descend(state.around, state.walk, state.least, time_left(state.context, SLICE))
        state.value -= saved
        best = state.best_value
        self._offer(state)
        if state.best_value >= best:
            begin_from(state.walk, before)
            state.value = value

    def finish(self, state: State) -> Final:
        bound = self._bound(state)
        parts = 0 if state.best_part is None else len(np.unique(state.best_part))
        return Final(
            bound=bound, note=f"partition of {state.problem.n} variables into {parts} parts; {state.tree.story()}"
        )
