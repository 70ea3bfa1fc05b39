"""Iterated tabu search: a strong labelling for models that are small or irregular, of any order.

    (i, s) = argmin over all changes of one label, except the forbidden ones, of d = E(x with x_i = s) - E(x)
    x_i <- s, and the old label of i is forbidden for the next ``tenure`` steps and a few at random;
    a forbidden change is made all the same when it leads below the best energy

Block coordinate descent stops at the first labelling that no single change improves.  Tabu search goes on from there:
at every step it makes the best single change that is not forbidden, uphill if need be, and forbids the way back for a
while, so that it climbs out of one basin and falls into the next.  After a long time without a new best labelling the
walk starts again, in turn from the best one with a random part drawn anew, from a cross of two of the best labellings
found so far (each variable takes the label of either parent), and from a random labelling.

The costs of all labels of all variables are kept up to date (moves/kept_costs.py), a step touches only the factors
around one variable, and the choice of the next step is one scan of these costs: thousands of variables are fine, large
images are not (use the methods made for grids).  Binary pairwise models (max-cut, QUBO) have a search of their own, of
spins and with a population (spin_pool.py).  There is no bound; ``auto`` adds it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tightmap.energy.energies import energy, unary_argmin
from tightmap.errors import OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Labels, Vector
from tightmap.moves.coordinate_descent import initial_costs
from tightmap.moves.kept_costs import change_label
from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, SLICE, end_of, late, time_left
from tightmap.runtime.random_numbers import next_word, start_state
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.search.spin_pool import SpinPool, suits

ELITE = 12  # labellings that are kept for crossing
ITERATION_WORK = 3_000_000  # about so many costs are scanned in one iteration


@lean
def _random(state):
    """31 random bits."""
    return next_word(state) >> np.uint64(33)


@lean
def walk(g, labels, cost, best, tabu, clock, steps, idle, tenure, random, value, typical, left):
    """``steps`` moves; value = [energy now, best energy], relative to any constant; best changes when it falls.

    Falls by less than a billionth of that energy, or of a typical cost, are rounding.

    tabu[offset[i] + s] is the step before which label s of variable i is forbidden.  Returns the moves made (fewer
    when time is up), and those since the last improvement, to which ``idle`` from before are added if there was none.
    """
    until = end_of(left)
    n = len(g.cards)
    work = 0
    for step in range(clock, clock + steps):
        work += len(cost)
        if work > LOOK:
            work = 0
            if late(until):
                return step - clock, idle
        chosen = -1
        label = 0
        least = np.inf
        ties = 0
        free = value[1] - value[0] - 1e-9 * max(typical, abs(value[1]))  # below this: a new best, always allowed
        for i in range(n):
            o = g.offset[i]
            now = labels[i]
            here = cost[o + now]
            for s in range(g.cards[i]):
                d = cost[o + s] - here
                if d > least or s == now:
                    continue
                if tabu[o + s] > step and d >= free:
                    continue
                if d < least:
                    least = d
                    chosen = i
                    label = s
                    ties = 1
                else:  # equally good: each with the same probability
                    ties += 1
                    if _random(random) % np.uint64(ties) == 0:
                        chosen = i
                        label = s
        if chosen < 0:
            idle += 1
            continue
        work += 20 * g.cards[chosen] * (g.adj_start[chosen + 1] - g.adj_start[chosen])
        tabu[g.offset[chosen] + labels[chosen]] = step + tenure + _random(random) % np.uint64(10)
        change_label(g, labels, cost, chosen, label)
        value[0] += least
        if value[0] < value[1] - 1e-9 * max(typical, abs(value[1])):
            value[1] = value[0]
            for i in range(len(labels)):
                best[i] = labels[i]
            idle = 0
        else:
            idle += 1
    return steps, idle


@dataclass
class State:
    graph: Graph
    context: Context
    labels: Labels
    cost: Vector
    best: Labels  # of this walk
    tabu: np.ndarray  # the step before which a label is forbidden, for every label of every variable
    random: np.ndarray
    value: Vector  # energy of the present labels, lowest energy of this walk
    clock: int = 0
    idle: int = 0  # steps since the last new best labelling of this walk
    left: int = 0  # steps that are left of the present iteration
    rounds: int = 0
    champion: Labels | None = None  # the best labelling of all walks
    champion_energy: float = float("inf")  # the running sum of a walk
    elite: list[tuple[float, Labels]] = field(default_factory=list)  # the best ends of walks, no two alike


@dataclass(frozen=True)
class Tabu(Solver):
    """Options of tabu search.

    patience  steps without a new best labelling before the best one is shaken; 0 chooses by the number of variables
    rounds    how often to shake before stopping
    tenure    steps for which a label that was left stays forbidden; 0 chooses by the number of variables
    strength  share of the variables that a shake draws anew
    spins     binary pairwise models: a population instead of one walk; rounds are its children, patience and strength
              do not apply
    """

    patience: int = 0
    rounds: int = 60
    tenure: int = 0
    strength: float = 0.15
    spins: bool = True

    name: ClassVar[str] = "tabu"
    summary: ClassVar[str] = "iterated tabu search with kept costs; strong labellings of small or irregular models"
    capabilities: ClassVar[Capabilities] = Capabilities(random=True)

    def __post_init__(self) -> None:
        if self.patience < 0 or self.rounds < 0 or self.tenure < 0:
            raise OptionError("tabu: patience, rounds and tenure must be at least 0")
        if not 0.0 < self.strength <= 1.0:
            raise OptionError(f"tabu: strength must be in (0, 1], got {self.strength}")

    def start(self, graph: Graph, init: Init, context: Context) -> State | SpinPool:
        labels = (init.labels if init.labels is not None else unary_argmin(graph)).astype(np.int64)
        if init.labels is None and init.relaxed is not None:
            g = graph.arrays
            labels = np.array(
                [int(init.relaxed[g.offset[i] : g.offset[i + 1]].argmax()) for i in range(graph.n)], dtype=np.int64
            )
        if self.spins and suits(graph):
            return SpinPool(graph, context, labels, self._tenure(graph))
        seed = start_state(context.seed)
        state = State(
            graph,
            context,
            labels.copy(),
            np.empty(len(graph.arrays.unary)),
            labels.copy(),
            np.zeros(len(graph.arrays.unary), dtype=np.int64),
            seed,
            np.zeros(2),
        )
        self._walk_from(state, labels)
        return state

    def _walk_from(self, state: State, labels: Labels) -> None:
        """Let the walk go on from ``labels``, with costs computed afresh, so that rounding errors do not add up."""
        state.labels = labels.copy()
        initial_costs(state.graph.arrays, state.labels, state.cost)
        state.value[0] = state.value[1] = energy(state.graph, labels)
        state.best = labels.copy()
        state.idle = 0

    def _tenure(self, graph: Graph) -> int:
        return self.tenure or max(2, min(graph.n // 4, 10 + graph.n // 100))

    def adopt(self, state: State | SpinPool, labels: Labels) -> None:
        """Go on from a labelling that another method found, when it is better."""
        if isinstance(state, SpinPool):
            state.adopt(labels)
            return
        value = energy(state.graph, labels)
        if value < state.champion_energy:
            state.champion, state.champion_energy = labels.copy(), value
            self._walk_from(state, labels)

    def step(self, state: State | SpinPool) -> Progress:
        if isinstance(state, SpinPool):
            complete = state.advance()
            return Progress(
                labels=state.champion,
                energy=state.champion_energy,
                iterations=int(complete),
                pending=not complete,
                done=state.children > self.rounds,
            )
        graph = state.graph
        tenure = self._tenure(graph)
        patience = self.patience or max(1000, 20 * graph.n)
        steps = max(1, min(patience, ITERATION_WORK // max(1, len(graph.arrays.unary))))
        state.left = state.left or steps
        made, state.idle = walk(
            graph.arrays, state.labels, state.cost, state.best, state.tabu, state.clock,
            state.left, state.idle, tenure, state.random, state.value, graph.typical, time_left(state.context, SLICE),
        )  # fmt: skip
        state.clock += made
        state.left -= made
        if state.value[1] < state.champion_energy:
            state.champion, state.champion_energy = state.best.copy(), float(state.value[1])
        if state.left > 0:  # the iteration goes on: where it was interrupted changes nothing
            return Progress(labels=state.champion, iterations=0, pending=True)
        done = False
        if state.idle >= patience:
            state.rounds += 1
            done = state.rounds > self.rounds
            if not done:
                self._shake(state)
        return Progress(labels=state.champion, done=done)

    def _shake(self, state: State) -> None:
        rng = np.random.default_rng((state.context.seed, state.rounds))
        cards = state.graph.arrays.cards.astype(np.int64)
        value = float(state.value[1])
        if all(abs(value - e) > 1e-9 * state.graph.magnitude(e) for e, _ in state.elite):
            state.elite = sorted([*state.elite, (value, state.best.copy())], key=lambda pair: pair[0])[:ELITE]
        kind = state.rounds % 4
        fresh = rng.integers(0, cards)
        best = state.best if state.champion is None else state.champion
        if kind == 0:
            labels = fresh
        elif kind == 1 or len(state.elite) < 2:
            labels = np.where(rng.random(state.graph.n) < self.strength, fresh, best)
        else:
            a, b = rng.choice(len(state.elite), 2, replace=False)
            labels = np.where(rng.random(state.graph.n) < 0.5, state.elite[a][1], state.elite[b][1])
        self._walk_from(state, labels.astype(np.int64))

    def finish(self, state: State | SpinPool) -> Final:
        return Final(labels=state.champion)
