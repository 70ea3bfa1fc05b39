"""exact: branch and bound that ends with a proof, and that can be stopped at any time with a labelling and a bound.

The energy is kept as a constant, unary costs and functions, none of them negative, in whole numbers:

    E(x) >= base + [c0 + sum_i c_i(x_i) + sum_A c_A(x_A)] / scale - allowance      (equal where all costs are whole)

Moves of cost between functions, variables and c0 leave this sum as it is and raise c0, which is a lower bound:

    project   c_A(x_A) -= d(x_i),  c_i(x_i) += d(x_i),   d(x_i) = minimum of c_A over its other variables
    extend    the same with d(x_i) < 0, as long as no c_i becomes negative
    collect   c_i -= d,  c0 += d,                        d = minimum of c_i

A label a with c0 + c_i(a) >= cost of the best labelling is removed, and the search branches on "x_i is a" and "x_i is
not a".  The least c0 of all open nodes bounds the whole model.

    1. hard constraints are propagated, which removes labels for good, and a labelling that keeps all of them is looked
       for, or the proof that there is none (moves/feasibility);
    2. the graph becomes whole numbers, relative to a first labelling (network.py), and variables that follow from
       another one are merged into it (functional.py);
    3. variables with few neighbours are eliminated, and an order for all others is looked for: where their tables are
       small, elimination is the whole solution (elimination.py);
    4. what is left falls into connected components;
    5. each component gets a good dual bound by message passing (root_messages.py) and is searched best-first with
       depth-first bursts (search.py) under soft arc consistency (consistency.py, wide_functions.py);
    6. elimination with larger tables takes over where the search has had as much work as that would be; otherwise
       contradictions among functions that would cost nothing raise a bound of their own (cores.py), alone for a while,
       later beside the search for as long as it is the better one.

The bound that is reported is what elimination and the components prove together.  All arithmetic of the search is in
integers, so that a proof does not depend on rounding; what converting the costs may lose is subtracted.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tightmap.energy.certificate import Proof
from tightmap.energy.energies import energy, unary_argmin
from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.moves.feasibility.engine import Feasibility, infeasible_bound
from tightmap.runtime.memory import SMALL, available_bytes, require
from tightmap.runtime.pace import TimeUp
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.exact.component import Component
from tightmap.solvers.exact.cores import Cores
from tightmap.solvers.exact.elimination import Plan, eliminate, eliminate_low_degrees, plan_elimination
from tightmap.solvers.exact.functional import merge_functional
from tightmap.solvers.exact.kept import KeptLabels
from tightmap.solvers.exact.network import (
    Network,
    build_network,
    components,
    table_entries,
)

ENTRIES = 1_000_000  # a model with a factor of more table entries is refused
TOTAL = 50_000_000  # so is one whose tables have more entries together
STEP_WORK = 20_000_000  # a step looks at so many table entries, which takes about a tenth of a second
FIRST_WORK = 2_000_000  # the first steps of the search are shorter, each twice as long as the one before
PROBE = 120_000_000  # work of the search before anything else is tried
# The same beside hard constraints, whose contradictions are what cores are made of.
# bw_p34_10 on one busy core: proven after 4.4 s with the longer one, 1.8 s with this one
PROBE_BESIDE_HARD = 4_000_000
EFFORT = 10_000_000  # words of the graph looked at before the search for an order of elimination is given up
CHEAP = 25_000_000  # work of elimination, about a tenth of a second, that is done at once
VARIABLE = 10_000  # what a variable counts for in this, beside the entries of its table
PATIENCE = 1.0  # otherwise elimination begins when the search has had this part of its work
ENTRY = 6e-9  # seconds of an entry, about: what does not fit into the time left is not begun
CORE_WORK = 2.0  # a unit of the search by cores takes as long as so many of the other one, about ten nanoseconds
# How much time cores have for every second of the other search: while their bound rises by a tenth of the gap within so
# much work; while it is the better one and does so within more work; later on.
RISING, PATIENT = 30_000_000, 200_000_000
FIRST, AHEAD, LATER = 1.0, 1.0, 0.1
FAILURES = 20_000  # of the search for a feasible labelling, before the other search begins as well
SOME_FAILURES = 500  # of these in one step
TABLES = 16.0  # all tables of bucket elimination together may be so many times as large as the largest allowed one
BYTES = 20.0  # of an entry of the tables that are there at once, while they are made
ROOM = 1 << 30  # bytes of all these


@dataclass
class State:
    graph: Graph
    context: Context
    best: Labels  # prunes the search, and stays with the state, from which a later run goes on
    best_energy: float
    problem: Feasibility | None = None  # the hard constraints, while it is not known whether they can be kept
    kept: KeptLabels | None = None  # the labels that they allow
    network: Network | None = None
    merged: int = 0  # variables of it that follow from another one
    before: Network | None = None  # as it was before elimination, for the cores
    order: list[int] | None = None  # of a complete elimination: what is still to do
    cores: Cores | None = None
    planned: bool = False  # whether an elimination of the whole model has been considered
    plan: Plan | None = None  # of that, where it is possible
    parts: list[Component] | None = None
    turn: int = 0  # which component is searched next
    slices: int = 0  # of the search
    bound: float = -np.inf
    done: bool = False
    found: list[int] = field(default_factory=list)  # best cost of every component at the last report


@dataclass(frozen=True)
class Exact(Solver):
    """Options of the exact search.

    degree       variables with at most so many neighbours are eliminated before the search
    elimination  entries of the largest table for which the whole model is solved by elimination; 0: never
    cores        whether contradictions among functions without cost are looked for, too
    """

    degree: int = 2
    elimination: int = 1 << 28
    cores: bool = True

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "branch and bound with soft arc consistency, any order: ends with a proof, anytime bounds"
    capabilities: ClassVar[Capabilities] = Capabilities(small_tables=True, bounds=True, exact=True)

    def __post_init__(self) -> None:
        if self.degree < 0:
            raise OptionError(f"exact: degree must be at least 0, got {self.degree}")
        if not 0 <= self.elimination <= 1 << 28:
            raise OptionError(f"exact: elimination must be between 0 and {1 << 28}, got {self.elimination}")

    def check(self, graph: Graph) -> None:
        entries = table_entries(graph)
        if entries.max(initial=0.0) > 1.01 * ENTRIES:
            first = int(np.argmax(entries > 1.01 * ENTRIES))
            raise ModelError(
                f"method 'exact' takes factors of at most {ENTRIES} table entries, but the factor on variables "
                f"{graph.original_scope(first)} has about {entries[first]:.3g}"
            )
        if entries.sum() > TOTAL:
            raise ModelError(
                f"method 'exact' takes tables of at most {TOTAL} entries in all, but this model has {entries.sum():.3g}"
            )

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        first = local_minimum(graph, init.labels if init.labels is not None else unary_argmin(graph), context)
        if isinstance(init.state, State) and init.state.graph is graph:
            state = copy.deepcopy(init.state, {id(graph): graph})
            state.context = context
            self._offer(state, first)
            return state
        require(48.0 * table_entries(graph).sum(), "the tables of method 'exact'")
        state = State(graph, context, first, energy(graph, first))
        if graph.hard > 0.0:
            state.problem = Feasibility(graph, first)
        return state

    def _offer(self, state: State, labels: Labels) -> None:
        value = energy(state.graph, labels)
        if value < state.best_energy:
            state.best, state.best_energy = labels, value

    def adopt(self, state: State, labels: Labels) -> None:
        """Take over a better labelling that another method found: it prunes from now on."""
        self._offer(state, labels)
        if state.network is not None:
            self._prune(state, state.network, labels)

    def _prune(self, state: State, net: Network, labels: Labels) -> None:
        """From now on only better labellings than this one are looked for."""
        mine = net.inward(labels)
        if mine is None:
            return
        if net.choices:  # variables that are gone follow from the others, at no greater cost
            mine = mine.copy()
            net.complete(mine)
            self._offer(state, net.outward(mine))
        if state.cores is not None:
            state.cores.offer(mine)
        for part in state.parts or []:
            if not part.closed:
                part.offer(mine[part.variables])

    def step(self, state: State) -> Progress:
        if not state.done:
            with suppress(TimeUp):
                self._advance(state)
        return Progress(labels=state.best, bound=state.bound, done=state.done)

    def _advance(self, state: State) -> None:
        graph = state.graph
        if state.problem is not None:
            self._keep_hard_constraints(state, state.problem)
            if state.done or (state.problem is not None and state.problem.failures < FAILURES):
                return
        if state.network is None:
            upper = min(state.best_energy, graph.hopeless)
            state.network = build_network(graph, upper, state.context, state.kept)
            state.merged = merge_functional(state.network, state.context)
            state.planned = False
        elif not state.planned:
            state.planned = True
            state.before = state.network.copy()
            eliminate_low_degrees(state.network, self.degree, 1 << 16, state.context)
            state.plan = self._plan_elimination(state.graph.n, state.network)
            if state.plan is None:  # no step of its own: who searches many small cores counts the steps
                self._split(state, state.network)
        elif state.order is not None:
            self._eliminate(state, state.network)
        elif self._turn_of_elimination(state):
            assert state.plan is not None
            state.order, state.parts, state.before, state.cores = list(reversed(state.plan.order)), None, None, None
        elif state.parts is None:
            self._split(state, state.network)
        elif self._probing(state):
            self._search(state, state.parts)
        elif self._turn_of_cores(state, state.network):
            self._find_cores(state, state.network)
        else:
            self._search(state, state.parts)
        self._report(state, state.network)
        if state.done and self._blurred(state, state.network):
            state.network, state.order, state.before, state.cores, state.parts = None, None, None, None, None
            state.plan, state.done = None, False

    def _blurred(self, state: State, net: Network) -> bool:
        """Whether ties were judged beside a labelling of far greater cost than the one that was found.

        What counts as a tie, and what rounding may lose, is a part of (first upper bound - base).  With the upper bound
        as it is now, costs above it become as bad as hard ones, and all that remain are seen more sharply.
        """
        if net.whole or 2.0 * max(state.best_energy - net.base, 0.0) >= net.room:
            return False
        return not Proof(state.graph).holds(state.best, state.best_energy, state.bound)

    def _keep_hard_constraints(self, state: State, problem: Feasibility) -> None:
        """A part of the search for a labelling that keeps the hard constraints; where it is hard to find, all along."""
        feasible = state.best_energy <= state.graph.hard_threshold
        found = problem.propagate() if feasible else problem.run(state.context.remaining(), SOME_FAILURES)
        if state.kept is None:
            state.kept = KeptLabels(state.graph.arrays.offset, problem.alive)
        if found is None:
            return
        state.problem = None
        if not found:
            state.bound, state.done = infeasible_bound(state.graph), True
        elif not feasible and problem.labels is not None:
            better = local_minimum(state.graph, problem.labels, state.context)
            self._offer(state, better)
            if state.network is not None:
                self._prune(state, state.network, better)

    def _plan_elimination(self, n: int, net: Network) -> Plan | None:
        """An order in which all variables can be eliminated, if there is one."""
        if not self.elimination:
            return None
        left = [i for i in range(n) if i not in net.gone]
        plan = plan_elimination(net.cards, left, net.functions, float(np.log2(self.elimination)), EFFORT)
        if plan is None or plan.entries > TABLES * self.elimination or BYTES * plan.room > ROOM:
            return None
        return plan

    def _turn_of_elimination(self, state: State) -> bool:
        """Whether to eliminate all variables now: when that is little, or as much as was spent on the search."""
        plan = state.plan
        if plan is None:
            return False
        work = plan.entries + VARIABLE * len(plan.order)
        cores = 0 if state.cores is None else state.cores.work
        if work > CHEAP and self._spent(state) + CORE_WORK * cores < PATIENCE * work:
            return False
        if ENTRY * work > state.context.remaining():
            return False
        if BYTES * plan.room > SMALL and BYTES * plan.room > available_bytes():
            state.plan = None
            return False
        return True

    def _probing(self, state: State) -> bool:
        """Whether the search is still alone: what it solves in a moment needs nothing else."""
        most = PROBE_BESIDE_HARD if state.graph.hard > 0.0 else PROBE
        return self._spent(state) < most

    def _spent(self, state: State) -> int:
        """Work of the search of all components."""
        return sum(part.effort for part in state.parts or [])

    def _turn_of_cores(self, state: State, net: Network) -> bool:
        """Whether it is the turn of the cores: they have a part of the time, most while theirs is the best bound."""
        if state.cores is None:
            if not self.cores or state.before is None:
                return False
            state.cores = Cores(state.before)
            state.before = None
            if state.best_energy <= state.graph.hard_threshold:
                self._prune(state, net, state.best)
        cores = state.cores
        if cores.closed:
            return False
        share = LATER
        if cores.idle < RISING:
            share = FIRST
        elif cores.idle < PATIENT and cores.bound >= state.bound:
            share = AHEAD
        return CORE_WORK * cores.work <= share * self._spent(state)

    def _find_cores(self, state: State, net: Network) -> None:
        """Look for cores for a while; better labellings on the way."""
        cores = state.cores
        assert cores is not None
        end = cores.work + STEP_WORK
        while cores.work < end and not cores.closed and state.context.remaining() > 0.0:
            if cores.step(state.context.remaining(), end - cores.work):
                assert cores.labels is not None
                cores.net.complete(cores.labels)
                better = local_minimum(state.graph, net.outward(cores.labels), state.context)
                self._offer(state, better)
                self._prune(state, net, better)
        state.bound = max(state.bound, cores.bound)
        state.done = cores.proven

    def _eliminate(self, state: State, net: Network) -> None:
        """Some eliminations of a complete order; labels come back after the last one."""
        assert state.order is not None
        work = 0
        while state.order and work < STEP_WORK // 8:
            i = state.order[-1]
            work += 1000 + net.cards[i] * int(np.prod([net.cards[j] for j in net.neighbours(i)], dtype=np.float64))
            eliminate(net, i, state.context)
            state.order.pop()
        if not state.order:
            state.parts = []

    def _split(self, state: State, net: Network) -> None:
        best = net.inward(state.best) if state.best_energy <= state.graph.hard_threshold else None
        state.parts = []
        apart = components(net)
        # what all components together may miss is one grain of the network, which its bound allows for
        grain = net.grain if net.whole else max(1, net.grain // max(1, len(apart)))
        # A label whose partners are restricted hardly ever dominates another: jobs (seeds 1, 2, 5, 6), queens (1, 2, 5)
        # and cliques took 12 s without looking for that and 15 s with it; pairs of clauses (1, 5), which restrict
        # nothing, 20 400 nodes without it and 14 300 with it
        dominance = state.graph.hard == 0.0
        for variables in apart:
            labels = best[np.array(variables)] if best is not None else None
            state.parts.append(Component(net, variables, net.upper - net.constant, grain, dominance, labels))
        state.found = [part.best for part in state.parts]

    def _search(self, state: State, parts: list[Component]) -> None:
        """One slice of the next component that is open."""
        for _ in parts:
            part = parts[state.turn % len(parts)]
            state.turn += 1
            if not part.closed:
                part.step(min(STEP_WORK, FIRST_WORK << min(state.slices, 8)))
                state.slices += 1
                return

    def _report(self, state: State, net: Network) -> None:
        parts = state.parts
        if parts is None or state.done:
            state.bound = max(state.bound, net.bound(0))
            return
        state.bound = max(state.bound, net.bound(sum(part.bound for part in parts)))
        state.done = all(part.closed for part in parts)
        found = [part.best for part in parts]
        if found != state.found or state.done:
            state.found = found
            labels = np.zeros(state.graph.n, dtype=np.int64)
            for part in parts:
                mine = part.labels
                if mine is None:
                    return
                labels[part.variables] = mine
            net.complete(labels)
            self._offer(state, net.outward(labels))
            if not state.done:  # descent makes more of the labelling of a dive
                better = local_minimum(state.graph, net.outward(labels), state.context)
                if energy(state.graph, better) <= state.best_energy:
                    self._offer(state, better)
                    self._prune(state, net, better)

    def finish(self, state: State) -> Final:
        return Final(labels=state.best, bound=state.bound, state=state, note=self._story(state))

    def _story(self, state: State) -> str:
        net, parts = state.network, state.parts
        if net is None:
            return ""
        if state.order is not None:
            return f"bucket elimination, {len(net.choices)} of {state.graph.n} variables"
        story = f"{state.merged} variables merged, " if state.merged else ""
        story += f"{len(net.choices) - state.merged} variables eliminated"
        if state.cores is not None and state.cores.cores:
            story += f", {state.cores.cores} cores"
        if parts:
            nodes = sum(part.nodes for part in parts)
            story += f", {len(parts)} component{'s' * (len(parts) > 1)}"
            removed, labels = sum(part.removed for part in parts), sum(len(part.net.unary) for part in parts)
            story += f", {removed} of {labels} labels removed at the root, {nodes} nodes"
        return story
