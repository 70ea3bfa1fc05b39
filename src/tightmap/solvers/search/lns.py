"""Large neighbourhood search: exact minimisation of random subgraphs of small width, with kicks and crossing.

    x_R <- argmin E(x_R, x_rest) + sum of noise_i(x_i) over i in R,   x_i in a random set of labels for every i in R,
    R = induced subgraph of bounded width in a ball around a random variable, by variable elimination

A move takes a region around a random variable and, for every variable in it, some of its labels; of that it minimises
an induced subgraph of bounded width exactly, given all the rest (moves/elimination.py).  On a sparse graph of a
thousand variables one move of some milliseconds decides eight variables in ten at once, where annealing and tabu search
decide one.  Tiny random costs choose among equal minima, so that plateaus are crossed.

A trial disturbs a small region (by a minimum under random costs), improves a wider one by a few exact moves, and
compares the result with the labelling at home, the one from which trials start: every connected set of variables where
the two differ is taken over if that does not raise the energy (moves/components.py).  In this way a large model
improves in many places independently.

When many trials in a row bring nothing, home is crossed with the best labellings so far: the variables in which two
labellings differ choose between the two labels, again by elimination, so that the result is the best mixture, or close
to it, and never worse than either.  Every other time home is then heated: moves over the whole model under random costs
that cool down lead far away, and the trials start again from there.

Any order, any kind of factor, any number of labels.  There is no bound; ``auto`` adds it.  Best on sparse graphs.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tightmap.energy.energies import energy
from tightmap.errors import OptionError
from tightmap.factors.kernels import add_slice, load_unary, most_labels
from tightmap.graph.graph import Graph
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context, Labels
from tightmap.moves.elimination import REGION, WIDTH, ball, choose_subgraph, minimise_subgraph
from tightmap.runtime.compiled import compiled, lean
from tightmap.runtime.random_numbers import start_state, uniform
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.search.temperature import typical_change
from tightmap.solvers.start_labels import descended

POOL = 1 << 22  # most entries that the messages of one subgraph may have together
STEP_WORK = 8_000_000  # a step ends after it has visited so many table entries
PATIENCE = 150  # a cycle ends after so many trials in a row that did not improve the labelling at home
HEATING = 60  # moves in which the noise cools down after home was heated
ELITE = 8  # labellings that are kept for crossing
TINY = 1e-7  # amplitude of the random costs that break ties, relative to the typical cost of changing one label
MOST = 255  # most labels of one variable that a move chooses among


@lean
def _noise(random):
    """Gumbel noise to add to a cost: the label with the smallest sum is then a draw, cheap labels more likely."""
    return np.log(-np.log(uniform(random)))


@compiled
def choose_domain(g, labels, region, most, spread, random, domain_start, domain):
    """The labels that a move may use: the present one and the best of the others under noise, ``most`` in all."""
    row = np.empty(most_labels(g.cards))
    top = 0
    domain_start[0] = 0
    for q in range(len(region)):
        i = region[q]
        c = g.cards[i]
        if c <= most:
            for s in range(c):
                domain[top + s] = s
            top += c
        else:
            load_unary(g, i, row)
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                add_slice(g, g.adj_factor[a], g.adj_pos[a], labels, row, 1.0)
            for s in range(c):
                row[s] += spread * _noise(random)
            row[labels[i]] = -np.inf
            for _ in range(most):
                best = 0
                for s in range(1, c):
                    if row[s] < row[best]:
                        best = s
                domain[top] = best
                row[best] = np.inf
                top += 1
        domain_start[q + 1] = top
    return top


@compiled
def _minimise(g, labels, count, top, limit, far, stir, heat, random, buffers):
    """Noise, subgraph and its minimum, for the region and the labels that the buffers hold; returns the work done."""
    place, region, domain_start, domain, noise, order, first, others, pool, choice = buffers
    inside = region[:count]
    for e in range(top):
        noise[e] = heat * _noise(random)
    work = -1
    while work < 0:
        kept = choose_subgraph(g, inside, place, domain_start, limit, far, stir, random, order, first, others)
        work = minimise_subgraph(
            g, labels, inside, place, domain_start, domain, kept, order, first, others, noise, pool, choice
        )
        limit *= 0.25  # smaller tables, if the messages did not fit into the pool
    for q in range(count):
        place[region[q]] = -1
    return work + 500 * count + count * count // 4


@compiled
def move(g, labels, centre, size, most, limit, heat, spread, skip, far, stir, random, buffers):
    """Minimise a random subgraph of the ball of ``size`` variables around ``centre`` under noise of amplitude heat."""
    place, region, domain_start, domain = buffers[:4]
    count = ball(g, centre, size, skip, random, place, region)
    top = choose_domain(g, labels, region[:count], most, spread, random, domain_start, domain)
    return _minimise(g, labels, count, top, limit, far, stir, heat, random, buffers)


@lean
def _one_of(values, random):
    return values[int(uniform(random) * len(values))]


@compiled
def trial(g, labels, hot, table, random, buffers):
    """Disturb a ball (three times in four), settle a wider one by exact moves; sizes are drawn.  Returns the work."""
    n = len(labels)
    largest = len(buffers[1])
    low = min(6, largest)
    size = int(low * ((largest + 1) / low) ** uniform(random))
    wide = min(largest, 2 * size + 10)
    limit = min(table, 2.0 ** int(6.0 + 9.0 * uniform(random)))
    most = _one_of((2, 4, 8, 16, MOST), random)
    spread = hot * 2.0 ** (-2.0 + 5.0 * uniform(random))
    skip = _one_of((0.0, 0.5, 0.9), random)
    far = _one_of((0.0, 0.01, 1.0), random)
    stir = _one_of((0.3, 1.0, 3.0, 10.0), random)
    heat = hot * 2.0 ** (1.0 - 6.0 * uniform(random))
    centre = int(uniform(random) * n)
    quenches = 1
    work = 0
    if uniform(random) < 0.75:
        quenches = 3
        work += move(g, labels, centre, size, most, limit, heat, spread, skip, far, stir, random, buffers)
    for _ in range(quenches):
        work += move(g, labels, centre, wide, most, limit, TINY * hot, spread, skip, far, stir, random, buffers)
    return work


@compiled
def anneal_region(g, labels, heat, hot, table, random, buffers):
    """A move over the largest region there is, under noise of amplitude heat; returns the work."""
    centre = int(uniform(random) * len(labels))
    most = _one_of((2, 4, 8, 16, MOST), random)
    return move(g, labels, centre, len(buffers[1]), most, table, heat, hot, 0.0, 0.0, 1.0, random, buffers)


@compiled
def cross(g, labels, other, limit, heat, stir, random, buffers):
    """The best mixture of two labellings over a random subgraph of the variables in which they differ."""
    place, region, domain_start, domain = buffers[:4]
    n = len(labels)
    count = 0
    turn = int(uniform(random) * n)
    domain_start[0] = 0
    for t in range(n):
        i = (t + turn) % n
        if labels[i] != other[i] and count < len(region):
            region[count] = i
            place[i] = count
            domain[2 * count] = labels[i]
            domain[2 * count + 1] = other[i]
            count += 1
            domain_start[count] = 2 * count
    if count == 0:
        return 0
    return _minimise(g, labels, count, 2 * count, limit, 0.0, stir, heat, random, buffers)


@dataclass
class State:
    graph: Graph
    context: Context
    random: np.ndarray
    buffers: tuple[np.ndarray, ...]
    hot: float  # typical cost of changing one label
    home: Labels  # where the trials start; labellings of equal energy are taken, so that it drifts
    energy: float  # of home
    best_home: Labels  # the best that home has been in this search
    best_home_energy: float  # of it: a running sum of gains within a step, exact between two steps
    low: float = float("inf")  # the lowest energy of home in this cycle
    calm: int = 0  # trials since it was reached
    cycle: int = 0
    heating: int = 0  # moves of the present cooling that are left
    elite: list[tuple[float, Labels]] = field(default_factory=list)  # the best ends of cycles, no two alike


@dataclass(frozen=True)
class LNS(Solver):
    """Options of large neighbourhood search.

    cycles  how often trials, crossing and heating follow each other
    table   entries of the largest table
    """

    cycles: int = 10
    table: int = 16384

    name: ClassVar[str] = "lns"
    summary: ClassVar[str] = "exact moves over random subgraphs of small width; the strongest search on sparse models"
    capabilities: ClassVar[Capabilities] = Capabilities(random=True)

    def __post_init__(self) -> None:
        if self.cycles < 1 or not 4 <= self.table <= 1 << 20:
            raise OptionError("lns: cycles must be at least 1, table between 4 and 1048576")

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        labels = descended(graph, init, context)
        size = min(REGION, graph.n)
        entries = size * min(MOST, graph.max_labels)
        buffers = (
            np.full(graph.n, -1, dtype=np.int64),  # place of a variable in the region
            np.empty(size, dtype=np.int64),  # region
            np.empty(size + 1, dtype=np.int64),  # where the labels of each place start
            np.empty(entries, dtype=np.int64),  # labels that a move may use
            np.empty(entries),  # noise on them
            np.empty(size, dtype=np.int64),  # order of elimination
            np.empty(size + 1, dtype=np.int64),  # where the table of each eliminated variable starts in the next list
            np.empty(size * WIDTH, dtype=np.int64),  # the other variables of the tables
            np.empty(POOL),  # messages
            np.empty(POOL, dtype=np.uint8),  # minimising labels of the messages
        )
        value = energy(graph, labels)
        hot = typical_change(graph, labels)
        return State(graph, context, start_state(context.seed), buffers, hot, labels, value, labels.copy(), value)

    def adopt(self, state: State, labels: Labels) -> None:
        """Go on from a labelling that another method found, when it is better."""
        value = energy(state.graph, labels)
        if value < state.best_home_energy:
            self._keep(state, state.best_home_energy, state.best_home)
            state.home, state.energy, state.calm, state.heating = labels.copy(), value, 0, 0
            state.low = value
            state.best_home, state.best_home_energy = labels.copy(), value

    def step(self, state: State) -> Progress:
        before = state.best_home_energy
        work = 0
        while work < STEP_WORK and state.cycle < self.cycles and state.context.remaining() > 0:
            if state.heating > 0:
                work += self._heat(state)
            else:
                work += self._try(state)
                if state.calm >= PATIENCE:
                    work += self._meet(state)
        if not state.best_home_energy < before:
            return Progress(done=state.cycle >= self.cycles)
        value = energy(state.graph, state.best_home)  # afresh: the sum of all gains has rounding errors
        if state.energy == state.best_home_energy:
            state.energy = value
        state.best_home_energy = value
        return Progress(labels=state.best_home, done=state.cycle >= self.cycles, energy=value)

    def _heat(self, state: State) -> int:
        """One move of a cooling to a fiftieth of its first temperature, which falls from one cycle to the next."""
        heat = state.hot * 0.5 ** (1 + state.cycle // 2 % 4) * 0.02 ** (1.0 - state.heating / HEATING)
        args = (state.home, heat, state.hot, float(min(self.table, 4096)), state.random, state.buffers)
        state.heating -= 1
        work = anneal_region(state.graph.arrays, *args)
        if state.heating == 0:
            state.low = state.energy = energy(state.graph, state.home)
        return int(work)

    def _try(self, state: State) -> int:
        g = state.graph.arrays
        labels = state.home.copy()
        work = trial(g, labels, state.hot, float(self.table), state.random, state.buffers)
        tolerance = 1e-12 * (abs(state.energy) + state.hot)  # ties are taken, too: they lead on across plateaus
        state.energy -= component_fusion(g, state.home, labels, -tolerance)
        state.calm += 1
        if state.energy < state.low - tolerance:  # not merely won back what ties had cost
            state.calm, state.low = 0, state.energy
            self._offer(state)
        return int(work) + state.graph.n

    def _offer(self, state: State) -> None:
        if state.energy < state.best_home_energy:
            state.best_home, state.best_home_energy = state.home.copy(), state.energy

    def _keep(self, state: State, value: float, labels: Labels) -> None:
        if all(abs(value - e) > 1e-9 * state.graph.magnitude(e) for e, _ in state.elite):
            state.elite = sorted([*state.elite, (value, labels.copy())], key=lambda pair: pair[0])[:ELITE]

    def _meet(self, state: State) -> int:
        """The end of a cycle: cross its labelling with the best ones; then heat it, or go back to the best."""
        g = state.graph.arrays
        labels = state.home.copy()
        work = 0
        for _, other in [(state.best_home_energy, state.best_home), *state.elite]:
            for stir in (0.3, 3.0):
                args = (labels, other, float(self.table), TINY * state.hot, stir, state.random, state.buffers)
                work += int(cross(g, *args))
        value = energy(state.graph, labels)
        if value < state.energy:
            state.home, state.energy = labels, value
            self._offer(state)
        self._keep(state, state.energy, state.home)
        state.cycle += 1
        state.calm = 0
        if state.cycle % 2:
            state.heating = HEATING
        else:
            state.home, state.energy = state.best_home.copy(), state.best_home_energy
        state.low = state.energy
        return work

    def finish(self, state: State) -> Final:
        return Final(labels=state.best_home)
