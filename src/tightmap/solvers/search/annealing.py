"""Simulated annealing of single labels with kept costs: the plain method, fast enough to be a strong one.

    propose a random other label s for variable i;   d = E(x with x_i = s) - E(x)
    x_i <- s with probability min(1, exp(-d / T)) (Metropolis);   T falls by a constant factor from sweep to sweep

A sweep proposes, for every variable, as many random labels as it has others.  The costs of all labels are kept up to
date (moves/kept_costs.py), so that a proposal that is refused, at low temperatures nearly every one, costs a few
nanoseconds whatever the order and the degree.

A cycle cools geometrically to a twentieth of its first temperature, ends with descent, and is fused region by region
into the best labelling (moves/components.py).  Cycles become longer and longer, so that the time there is decides how
slowly the last one cools; their first temperatures go round a few multiples of the typical cost of changing one label,
the hot ones from where the last cycle ended, the gentle ones around the best labelling.  Where most changes break a
hard constraint, every second cycle begins at the temperatures at which constraints break, and cools all the way.

Any order, any kind of factor.  Best on dense or irregular models with many local minima: spin glasses in three
dimensions, colouring, weighted CSP, MaxSAT.  There is no bound; ``auto`` adds it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy.energies import energy
from tightmap.errors import OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Incumbent, Labels, Vector
from tightmap.moves.coordinate_descent import initial_costs
from tightmap.moves.kept_costs import change_label, costs_touched
from tightmap.runtime.compiled import lean
from tightmap.runtime.pace import LOOK, SLICE, end_of, late, time_left
from tightmap.runtime.random_numbers import start_state, uniform
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.search.absorb import absorb
from tightmap.solvers.search.temperature import typical_change
from tightmap.solvers.start_labels import descended

PROPOSAL, UPDATE = 8, 20  # units of work, about a nanosecond each: a label proposed, a kept cost brought up to date
ITERATION = 24_000_000  # units of work after which an iteration ends with the present sweep
HEATS = (0.5, 1.0, 0.25, 0.125)  # first temperatures of the cycles, in units of the typical cost of changing one label
GENTLE = 0.25  # a cycle whose first temperature is at most this one starts from the best labelling
COLD = 0.05  # last temperature of a cycle, relative to its first
# Beside hard constraints the changes that break none are few, and not the typical ones.  In 1.5 s from a feasible
# labelling, 18 families, seeds 2 and 3: mean above the best of six variants, at most 5 % each, 1.7 % with both rules,
# 1.9 without; random CSPs of 300 variables are 6 % lower with them, radio links higher (chains are there for these)
STIFF = 4.0  # times what those cost
MELTING = 10.0  # so many times as much for the typical change: it breaks a constraint
GROWTH = 1.3  # every cycle has so many times the sweeps of the one before


@lean
def metropolis(g, touched, labels, cost, best, value, temperature, rate, sweeps, first, made, random, budget, left):
    """Up to ``sweeps`` sweeps, until they have cost ``budget`` units of work.

    The first one goes on with variable ``first``, for which ``made`` labels have been proposed.
    value = [energy now, lowest at the end of a sweep];   touched[i] = kept costs that change with the label of i
    Returns the temperature, the sweeps that are left, what is left of the budget (at the end of a sweep, 0 when
    nothing is), and the variable to go on with when time was up, with its proposals so far; 0, 0 at the end of a sweep.
    """
    until = end_of(left)
    look, work = LOOK, 0
    for sweep in range(sweeps):
        for i in range(first, len(g.cards)):
            if work > look:
                look = work + LOOK
                if late(until):
                    return temperature, sweeps - sweep, budget - work, i, made
            o = g.offset[i]
            others = g.cards[i] - 1
            work += PROPOSAL * (others - made)
            for at in range(made, others):
                s = int(uniform(random) * others)
                now = labels[i]
                if s >= now:
                    s += 1
                d = cost[o + s] - cost[o + now]
                if d <= 0.0 or (d < 20.0 * temperature and uniform(random) < np.exp(-d / temperature)):
                    change_label(g, labels, cost, i, s)
                    value[0] += d
                    work += UPDATE * touched[i]
                    if work > look:  # one variable may have as many labels as an image pixels
                        look = work + LOOK
                        if late(until):
                            work -= PROPOSAL * (others - at - 1)
                            return temperature, sweeps - sweep, budget - work, i, at + 1
            made = 0
        first = 0
        if value[0] < value[1]:
            value[1] = value[0]
            for i in range(len(labels)):
                best[i] = labels[i]
        temperature *= rate
        if work >= budget:
            return temperature, sweeps - sweep - 1, 0, 0, 0
    return temperature, 0, budget - work, 0, 0


@dataclass
class State:
    graph: Graph
    context: Context
    random: np.ndarray
    touched: Labels  # kept costs that a new label of each variable changes
    hot: float  # typical cost of changing one label, the unit of temperatures
    melting: float  # the same where that breaks a constraint, 0 where it does not
    labels: Labels
    cost: Vector
    walk: Labels  # the best labelling of the present cycle
    value: Vector  # energy of the present labels, lowest energy at the end of a sweep of this cycle
    incumbent: Incumbent  # what the cycles are fused into
    cycle: int = -1
    left: int = 0  # sweeps that are left of the present cycle
    sweeps: int = 0  # of the present cycle, those that were made included
    budget: int = ITERATION  # units of work left to the present iteration; below 0 in the middle of its last sweep
    variable: int = 0  # where the present sweep goes on
    proposals: int = 0  # that were made for it
    temperature: float = 0.0
    cooling: float = COLD  # last temperature of the present cycle, relative to its first


@dataclass(frozen=True)
class Annealing(Solver):
    """Options of simulated annealing.

    cycles       how often to cool
    sweeps       of the first cycle; every further one is longer by a third
    temperature  factor on all temperatures
    """

    cycles: int = 24
    sweeps: int = 50
    temperature: float = 1.0

    name: ClassVar[str] = "annealing"
    summary: ClassVar[str] = "simulated annealing of single labels with kept costs; dense and irregular models"
    capabilities: ClassVar[Capabilities] = Capabilities(random=True)

    def __post_init__(self) -> None:
        if self.cycles < 1 or self.sweeps < 1 or not self.temperature > 0.0:
            raise OptionError("annealing: cycles and sweeps must be at least 1, temperature positive")

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        labels = descended(graph, init, context)
        incumbent = context.incumbent_of(graph)
        incumbent.offer(labels)
        stiff = STIFF if graph.hard > 0.0 else 1.0
        hot = self.temperature * stiff * typical_change(graph, labels, breaking=False)
        melting = self.temperature * typical_change(graph, labels)
        state = State(
            graph,
            context,
            random=start_state(context.seed),
            touched=costs_touched(graph),
            hot=hot,
            melting=melting if melting > MELTING * hot else 0.0,
            labels=labels,
            cost=np.empty(len(graph.arrays.unary)),
            walk=labels,
            value=np.zeros(2),
            incumbent=incumbent,
        )
        self._next_cycle(state)
        return state

    def _next_cycle(self, state: State) -> None:
        state.cycle += 1
        melts = state.melting > 0.0 and state.cycle % 2 == 0
        heat = HEATS[state.cycle // (2 if state.melting > 0.0 else 1) % len(HEATS)]
        if heat <= GENTLE:
            state.labels = state.incumbent.wide_labels
        state.walk = state.labels.copy()
        initial_costs(state.graph.arrays, state.labels, state.cost)  # afresh: rounding errors have added up
        state.value[0] = energy(state.graph, state.labels)
        state.value[1] = np.inf
        state.temperature = heat * (state.melting if melts else state.hot)
        state.cooling = COLD * state.hot / state.melting if melts else COLD
        state.sweeps = state.left = int(min(1e9, self.sweeps * GROWTH ** min(state.cycle, 60)))

    def adopt(self, state: State, labels: Labels) -> None:
        """Take a labelling that another method found, when it is better, as the one to improve."""
        state.incumbent.offer(labels)

    def step(self, state: State) -> Progress:
        """An iteration is about ITERATION units of work, in slices of time: where these end changes nothing."""
        rate = state.cooling ** (1.0 / state.sweeps)
        state.temperature, state.left, state.budget, state.variable, state.proposals = metropolis(
            state.graph.arrays, state.touched, state.labels, state.cost, state.walk, state.value, state.temperature,
            rate, state.left, state.variable, state.proposals, state.random, state.budget,
            time_left(state.context, SLICE),
        )  # fmt: skip
        info = {"temperature": state.temperature}
        if state.variable > 0 or state.proposals > 0 or (state.left > 0 and state.budget > 0):
            return Progress(iterations=0, info=info, pending=True)
        state.budget = ITERATION
        improved = None
        if state.left == 0:
            improved = absorb(state.graph, state.context, state.incumbent, state.walk)
            self._next_cycle(state)
        done, pending = state.cycle >= self.cycles, state.left < state.sweeps
        return Progress(improved, done=done, info=info, pending=pending, energy=state.incumbent.energy)

    def finish(self, state: State) -> Final:
        absorb(state.graph, state.context, state.incumbent, state.walk)
        return Final(labels=state.incumbent.wide_labels)
