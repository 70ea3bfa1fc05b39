"""Annealing of chains: a change of one label together with all that follows from it, taken or refused as a whole.

    x_i <- s;   then, for every variable j that has not changed yet in this chain and shares a factor with one that has,
    x_j <- argmin_t E(x with x_j = t)   if that is lower than E(x),   forbidden combinations first
    the whole chain is kept with probability min(1, exp(-(E after - E before) / T)), otherwise undone

Between hard constraints no single change leads anywhere: a site cannot be closed while a shop takes it, an object
cannot go to a place that another one has, a picture cannot be taken while one that excludes it is.  The chain makes
room: the shops look for other sites, the object that was there goes where the first one came from (two places are
exchanged), what excludes the picture is given up and what becomes possible by that is added.  These are the ejection
chains that local searches of assignment and location problems are made of (Glover 1996), here for any model.

Every variable changes at most once in a chain, so that it ends.  Two queues hold the variables whose best label may be
another one now: a variable that violates a hard constraint is served at once, one that only gains waits until there is
no other.  The label s is the cheapest of a few that are drawn, so that labels that nothing speaks for are seldom
proposed.  The costs of all labels are kept up to date (moves/kept_costs.py); undoing a chain changes its labels back.

A cycle cools geometrically and ends with descent; what it found is fused region by region into the best labelling
(moves/components.py).  Cycles become longer and longer, so that the time there is decides how slowly the last one
cools.  The first one hardly climbs at all; the temperatures of the others go round a few multiples of what a chain
typically costs at a local minimum, the hot ones from where the last cycle ended, the gentle ones around the best
labelling.

Any order, any kind of factor.  Best beside hard constraints: assignment, location, scheduling, tracking, colouring with
prices.  There is no bound; ``auto`` adds it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

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
from tightmap.solvers.start_labels import descended

BATCH = 4096  # chains in an iteration
SAMPLE = 200  # chains that tell what one typically costs
FIRST = (1000, 300_000)  # least and most chains of the first cycle: large models have few for every variable
# Chosen among two to six values on nine families of constrained look-alikes, seeds 2 and 3, in 3 s.
DRAWN = 8  # most labels that are drawn for one proposal
COLD = 0.05  # last temperature of a cycle, relative to its first
# Of the next three four times as much was better where the search begins with a feasible labelling: 17 constrained
# families, seeds 2 to 5, 1.5 s, means above the best of five variants 1.3 instead of 9.4 % (counting at most 1 % each,
# 0.34 instead of 0.45); of 36 soft ones 0.05 instead of 0.13 %.  Twice as much again gains on magic squares, queens and
# sites, and loses on radio links (in four seeds 4, 3, 25 and 9 became 7, 13, 42 and 15), which a quarter suits best.
HEATS = (2.0, 4.0, 1.0, 0.5)  # first temperatures of the cycles, in units of the typical cost of a chain
QUENCH = 1 / 8  # the same of the very first cycle, which brings a good labelling soon
GENTLE = 1.0  # a cycle whose first temperature is at most this one starts from the best labelling
GROWTH = 1.3  # every cycle has so many times the chains of the one before
LONGEST = 10_000_000  # units of work, about a nanosecond each, after which a chain answers no more
URGENT, WAITING = np.uint8(1), np.uint8(2)  # bits: in which queue a variable is


class Chain(NamedTuple):
    """Room for one chain.  The queues are rings of n places; a variable is at most once in each of them."""

    changed: npt.NDArray[np.int64]  # (n,) the last chain in which a variable changed
    queued: npt.NDArray[np.uint8]  # (n,) URGENT and WAITING
    urgent: npt.NDArray[np.int64]  # (n,) whose neighbours changed, not looked at since
    waiting: npt.NDArray[np.int64]  # (n,) those of them that would gain, but violate nothing
    trail: npt.NDArray[np.int64]  # (n, 2) who changed, and the label before
    state: npt.NDArray[np.int64]  # (2,) the number of this chain, and how many changed in it


def room_for(n: int) -> Chain:
    fresh = np.zeros(n, np.int64)
    return Chain(
        fresh, np.zeros(n, np.uint8), fresh.copy(), fresh.copy(), np.zeros((n, 2), np.int64), np.zeros(2, np.int64)
    )


@lean
def _best_label(g, cost, j, now, random):
    """The cheapest label of j, the present one if it is as cheap; of others that are equal a random one is first."""
    o = g.offset[j]
    c = g.cards[j]
    first = int(uniform(random) * c)
    best = now
    for k in range(c):
        s = first + k
        if s >= c:
            s -= c
        if cost[o + s] < cost[o + best]:
            best = s
    return best


@lean
def _change(g, labels, cost, chain, i, s):
    """Give i the label s, as a part of the chain."""
    at = chain.state[1]
    chain.trail[at, 0] = i
    chain.trail[at, 1] = labels[i]
    chain.state[1] = at + 1
    chain.changed[i] = chain.state[0]
    change_label(g, labels, cost, i, s)


@lean
def follow(g, labels, cost, i, s, hard, tiny, chain, touched, random):
    """The chain that begins with x_i = s; returns what it adds to the energy, and the work.

    hard     what a forbidden entry costs, 0 where nothing is forbidden
    tiny     gains up to this are rounding
    touched  kept costs that change with the label of each variable
    """
    n = len(g.cards)
    urgent, waiting, queued, changed = chain.urgent, chain.waiting, chain.queued, chain.changed
    chain.state[0] += 1
    chain.state[1] = 0
    now = chain.state[0]
    d = cost[g.offset[i] + s] - cost[g.offset[i] + labels[i]]
    head = ahead = size = others = 0  # first place and length of the urgent and of the waiting queue
    work = 0
    j, label = np.int64(i), np.int64(s)
    while j >= 0:
        _change(g, labels, cost, chain, j, label)
        work += touched[j] + 10
        for a in range(g.adj_start[j], g.adj_start[j + 1]):
            f = int(g.adj_factor[a])
            for p in range(g.scope_start[f], g.scope_start[f + 1]):
                k = g.scope[p]
                if changed[k] != now and queued[k] & URGENT == 0:
                    queued[k] |= URGENT
                    urgent[(head + size) % n] = k
                    size += 1
        # the next one to change
        j = np.int64(-1)
        while j < 0 and size + others > 0:
            pressing = size > 0
            if pressing:
                k = urgent[head]
                head = (head + 1) % n
                size -= 1
                queued[k] &= WAITING
            else:
                k = waiting[ahead]
                ahead = (ahead + 1) % n
                others -= 1
                queued[k] &= URGENT
            if changed[k] == now or work > LONGEST:
                continue
            work += g.cards[k] + 2
            best = _best_label(g, cost, k, labels[k], random)
            gain = cost[g.offset[k] + labels[k]] - cost[g.offset[k] + best]
            if not gain > tiny:
                continue
            if pressing and not (hard > 0.0 and gain > 0.5 * hard):
                if queued[k] & WAITING == 0:
                    queued[k] |= WAITING
                    waiting[(ahead + others) % n] = k
                    others += 1
                continue
            d -= gain
            j = np.int64(k)
            label = np.int64(best)
    return d, work


@lean
def undo(g, labels, cost, chain):
    """Back to the labels before the chain."""
    for at in range(chain.state[1] - 1, -1, -1):
        change_label(g, labels, cost, chain.trail[at, 0], chain.trail[at, 1])


@lean
def propose(g, labels, cost, random):
    """A random variable, and the cheapest of a few random labels that it does not have."""
    i = int(uniform(random) * len(g.cards))
    o = g.offset[i]
    now = labels[i]
    others = g.cards[i] - 1
    best = now
    for _ in range(1 if others == 1 else 1 + int(uniform(random) * DRAWN)):
        s = int(uniform(random) * others)
        if s >= now:
            s += 1
        if best == now or cost[o + s] < cost[o + best]:
            best = s
    return i, best


@lean
def sample(g, labels, cost, hard, tiny, chain, touched, random, losses, left):
    """What each of some chains adds to the energy; all are undone.  Returns how many there were in the time left."""
    until = end_of(left)
    for k in range(len(losses)):
        if late(until):
            return k
        i, s = propose(g, labels, cost, random)
        losses[k] = follow(g, labels, cost, i, s, hard, tiny, chain, touched, random)[0]
        undo(g, labels, cost, chain)
    return len(losses)


@lean
def _copy(source, target):
    for k in range(len(source)):
        target[k] = source[k]


@lean
def anneal(g, labels, cost, best, value, temperature, rate, chains, hard, tiny, chain, touched, random, left):
    """So many chains, fewer when time is up; returns the temperature and how many are left.

    value = [energy now, the lowest in this cycle], of the labels and of ``best``
    """
    until = end_of(left)
    work = 0
    lowest = False  # the present labels are the best ones, and not copied yet
    made = 0
    while made < chains:
        if work > LOOK:
            work = 0
            if late(until):
                break
        made += 1
        i, s = propose(g, labels, cost, random)
        d, effort = follow(g, labels, cost, i, s, hard, tiny, chain, touched, random)
        work += 2 * effort + 100
        if d <= 0.0 or (d < 20.0 * temperature and uniform(random) < np.exp(-d / temperature)):
            if lowest and d > 0.0:
                _copy(labels, best)
                for at in range(chain.state[1]):
                    best[chain.trail[at, 0]] = chain.trail[at, 1]
                work += len(labels)
                lowest = False
            value[0] += d
            if value[0] < value[1] - tiny:
                value[1] = value[0]
                lowest = True
        else:
            undo(g, labels, cost, chain)
        temperature *= rate
    if lowest:
        _copy(labels, best)
    return temperature, chains - made


@dataclass
class State:
    graph: Graph
    context: Context
    random: np.ndarray
    touched: Labels  # kept costs that a new label of each variable changes
    chain: Chain
    labels: Labels
    cost: Vector
    walk: Labels  # the best labelling of the present cycle
    value: Vector  # energy of the present labels, the lowest energy of this cycle
    incumbent: Incumbent  # what the cycles are fused into
    tiny: float  # what differs by less is equal
    hot: float = 1.0  # typical cost of a chain, the unit of temperatures
    cycle: int = -1
    chains: int = 1  # of the present cycle
    left: int = 0  # of these, still to be made
    batch: int = BATCH  # chains that are left of the present iteration
    temperature: float = 0.0


@dataclass(frozen=True)
class Chains(Solver):
    """Options of the annealing of chains.

    cycles       how often to cool
    sweeps       of the first cycle: chains for every variable (1000 to 300,000 in all); the next ones become longer
    temperature  factor on all temperatures
    """

    cycles: int = 10
    sweeps: int = 20
    temperature: float = 1.0

    name: ClassVar[str] = "chains"
    summary: ClassVar[str] = "annealing of changes with all that follows from them; the strongest beside constraints"
    capabilities: ClassVar[Capabilities] = Capabilities(random=True)

    def __post_init__(self) -> None:
        if self.cycles < 1 or self.sweeps < 1 or not self.temperature > 0.0:
            raise OptionError("chains: cycles and sweeps must be at least 1, temperature positive")

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        labels = descended(graph, init, context)
        incumbent = context.incumbent_of(graph)
        incumbent.offer(labels)
        state = State(
            graph,
            context,
            random=start_state(context.seed),
            touched=costs_touched(graph),
            chain=room_for(graph.n),
            labels=labels,
            cost=np.empty(len(graph.arrays.unary)),
            walk=labels,
            value=np.zeros(2),
            incumbent=incumbent,
            tiny=1e-9 * graph.typical,
        )
        initial_costs(graph.arrays, labels, state.cost)
        state.hot = self.temperature * self._typical_loss(state)
        self._next_cycle(state)
        return state

    def _typical_loss(self, state: State) -> float:
        """Median over chains from here that cost something and break no constraint."""
        graph = state.graph
        losses = np.zeros(SAMPLE if graph.n else 0)
        made = sample(
            graph.arrays, state.labels, state.cost, graph.hard, state.tiny, state.chain, state.touched, state.random,
            losses, time_left(state.context),
        )  # fmt: skip
        soft = losses[:made]
        soft = soft[(soft > state.tiny) & (soft < (0.5 * graph.hard if graph.hard > 0.0 else np.inf))]
        return float(np.median(soft)) if len(soft) else graph.typical

    def _next_cycle(self, state: State) -> None:
        state.cycle += 1
        heat = HEATS[(state.cycle - 1) % len(HEATS)] if state.cycle else QUENCH
        if heat <= GENTLE:
            state.labels = state.incumbent.wide_labels
        state.walk = state.labels.copy()
        initial_costs(state.graph.arrays, state.labels, state.cost)  # afresh: rounding errors have added up
        state.value[:] = energy(state.graph, state.labels)
        state.temperature = heat * state.hot
        first = min(max(self.sweeps * state.graph.n, FIRST[0]), FIRST[1])
        state.chains = state.left = int(min(1e15, first * GROWTH ** min(state.cycle, 60)))

    def adopt(self, state: State, labels: Labels) -> None:
        """Take a labelling that another method found, when it is better, as the one to improve."""
        state.incumbent.offer(labels)

    def step(self, state: State) -> Progress:
        """An iteration is a batch of chains, in slices of time: where these end changes nothing."""
        graph = state.graph
        batch = min(state.batch, state.left)
        state.temperature, left = anneal(
            graph.arrays, state.labels, state.cost, state.walk, state.value, state.temperature,
            COLD ** (1.0 / state.chains), batch, graph.hard, state.tiny, state.chain, state.touched, state.random,
            time_left(state.context, SLICE),
        )  # fmt: skip
        state.batch -= batch - left
        state.left -= batch - left
        info = {"temperature": state.temperature}
        improved = None  # told at once: a batch on a large model takes seconds
        if state.value[1] < state.incumbent.energy - state.tiny and state.incumbent.offer(state.walk):
            improved = state.incumbent.wide_labels
        if left > 0:
            return Progress(improved, iterations=0, info=info, pending=True, energy=state.incumbent.energy)
        state.batch = BATCH
        if state.left == 0:
            found = absorb(state.graph, state.context, state.incumbent, state.walk)
            improved = improved if found is None else found
            self._next_cycle(state)
        done, pending = state.cycle >= self.cycles, state.left < state.chains
        return Progress(improved, done=done, info=info, pending=pending, energy=state.incumbent.energy)

    def finish(self, state: State) -> Final:
        absorb(state.graph, state.context, state.incumbent, state.walk)
        return Final(labels=state.incumbent.wide_labels)
