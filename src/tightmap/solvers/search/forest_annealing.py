"""Forest annealing: exact minimisation of random forests under noise that is slowly taken away.

    x_F <- argmin over x_F of E(x_F, x_rest) + sum of G_i(x_i) over i in F,   F = random induced forest of the graph
    G_i(s) = T log(-log u), u uniform in (0, 1): Gumbel noise;   T falls by a constant factor from forest to forest

Single-variable moves are weak where variables depend strongly on each other.  A random induced forest of a sparse graph
holds half of the variables or more, and given the rest it is minimised exactly by dynamic programming
(moves/forests.py).  The Gumbel noise on its unary costs makes that minimiser a random one: the forest is drawn, not
descended, and the walk leaves local minima.  A cycle starts at a temperature at which labels move freely, cools
geometrically, and ends with plain descent over forests until nothing improves; the next cycle starts from the best
labelling at half the temperature of the one before, every few cycles hot again from a random one.  What a cycle finds
is fused into the best labelling region by region: each connected set of variables where the two differ is exchanged if
that lowers the energy, so that a large model improves in many places independently.

Works for any order (a factor may have at most two of its variables in a forest) and any kind of factor.  Best on sparse
graphs of up to some ten thousand variables; on dense graphs forests are small and tabu search is the better choice.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.errors import OptionError
from tightmap.factors.kernels import workspace
from tightmap.graph.graph import Graph
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.disjoint_sets import find_root
from tightmap.moves.forests import minimise_forest, root_blocks
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import LOOK, end_of, late, time_left
from tightmap.runtime.random_numbers import start_state, uniform
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.search.temperature import typical_change
from tightmap.solvers.start_labels import descended

ITERATION_WORK = 3_000_000  # about so many entries are visited in one iteration
FUSE = 0.1  # below this part of the first temperature, labels are fused into the best labelling after every iteration
ROUNDING = 1e-13  # of an energy: a smaller gain of a sweep may be one of rounding, again and again
SETTLE = 6  # the descent at the end of a cycle stops after so many forests in a row without improvement


@compiled
def random_forest(g, state, order, root, seen, member, until):
    """Variables of a random maximal induced forest, in random order of entry; member[i] is 1 for them.

    It is not maximal when time is up.
    """
    n = len(g.cards)
    work = 0
    for q in range(n - 1, 0, -1):
        r = int(uniform(state) * (q + 1))
        order[q], order[r] = order[r], order[q]
    for i in range(n):
        root[i] = i
        seen[i] = -1
        member[i] = 0
    count = 0
    chosen = np.empty(n, np.int64)
    for q in range(n):
        i = order[q]
        work += 20 * (1 + g.adj_start[i + 1] - g.adj_start[i])
        if work > LOOK:
            work = 0
            if late(until):
                break
        fits = True
        for a in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[a])
            inside = 0
            for p in range(g.scope_start[f], g.scope_start[f + 1]):
                j = g.scope[p]
                if member[j] == 1:
                    inside += 1
                    r = find_root(root, j)
                    if seen[r] == i:  # a second link into the same tree would close a cycle
                        fits = False
                    seen[r] = i
            if inside > 1:
                fits = False
            if not fits:
                break
        if fits:
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = int(g.adj_factor[a])
                for p in range(g.scope_start[f], g.scope_start[f + 1]):
                    if member[g.scope[p]] == 1:
                        root[find_root(root, g.scope[p])] = i
            member[i] = 1
            chosen[count] = i
            count += 1
    return chosen[:count]


@compiled
def sweep(g, labels, state, order, root, seen, member, cost, noise, temperature, scratch, until):
    """Draw one forest, minimise it exactly under noise of the given temperature; returns the true change of energy."""
    chosen = random_forest(g, state, order, root, seen, member, until)
    start = np.array([0, len(chosen)])
    nodes, parent, link, _ = root_blocks(g, start, chosen)
    for i in nodes:
        member[i] = 0
        for e in range(g.offset[i], g.offset[i + 1]):
            noise[e] = temperature * np.log(-np.log(uniform(state))) if temperature > 0.0 else 0.0
    return minimise_forest(g, labels, nodes, parent, link, cost, member, scratch, noise, temperature > 0.0, until)


@compiled
def cool(g, labels, state, order, root, seen, member, cost, noise, hot, rate, sweeps, scratch, left):
    """Some sweeps of a cooling; returns the temperature after them and the change of energy of the last one."""
    until = end_of(left)
    temperature = hot
    change = 0.0
    for _ in range(sweeps):
        if late(until):
            break
        change = sweep(g, labels, state, order, root, seen, member, cost, noise, temperature, scratch, until)
        temperature *= rate
    return temperature, change


@dataclass
class State:
    graph: Graph
    context: Context
    labels: Labels
    incumbent: Incumbent  # what the cycles are fused into
    buffers: tuple[np.ndarray, ...]
    scratch: int
    hot: float
    temperature: float
    sweeps: int = 0  # of the present cycle
    calm: int = 0  # forests in a row without improvement, in the descent at the end of a cycle
    cycle: int = 0


@dataclass(frozen=True)
class ForestAnnealing(Solver):
    """Options of forest annealing.

    cycles       how often to heat and cool
    sweeps       forests per cooling; 0 chooses by the size of the model
    temperature  of the first cycle, in units of the typical cost of changing one label
    """

    cycles: int = 12
    sweeps: int = 0
    temperature: float = 2.0

    name: ClassVar[str] = "forest-annealing"
    summary: ClassVar[str] = "annealing over random forests, each minimised exactly; strong labellings of sparse models"
    capabilities: ClassVar[Capabilities] = Capabilities(random=True)

    def __post_init__(self) -> None:
        if self.cycles < 1 or self.sweeps < 0 or not self.temperature > 0.0:
            raise OptionError("forest-annealing: cycles must be at least 1, sweeps at least 0, temperature positive")

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        labels = descended(graph, init, context)
        incumbent = context.incumbent_of(graph)
        incumbent.offer(labels)
        n, entries = graph.n, len(graph.arrays.unary)
        buffers = (
            start_state(context.seed),
            np.arange(n),
            np.empty(n, dtype=np.int64),
            np.empty(n, dtype=np.int64),
            np.zeros(n, dtype=np.int32),
            np.empty(entries),
            np.zeros(entries),
        )
        hot = self.temperature * typical_change(graph, labels)
        return State(graph, context, labels, incumbent, buffers, workspace(graph.arrays), hot, temperature=hot)

    def adopt(self, state: State, labels: Labels) -> None:
        """Take a labelling that another method found, when it is better, as the one to improve."""
        state.incumbent.offer(labels)

    def step(self, state: State) -> Progress:
        graph, incumbent = state.graph, state.incumbent
        per_sweep = len(graph.arrays.unary) + 2 * len(graph.arrays.scope)
        chunk = max(1, min(50, ITERATION_WORK // max(1, per_sweep)))
        total = self.sweeps or max(60, min(2000, 20 * graph.n, 40_000_000 // max(1, per_sweep)))
        improved = None
        if state.sweeps < total:
            chunk = min(chunk, total - state.sweeps)
            rate = 0.01 ** (1.0 / total)  # a cycle ends at a hundredth of its first temperature
            start = (graph.arrays, state.labels, *state.buffers, state.temperature, rate, chunk, state.scratch)
            state.temperature, _ = cool(*start, time_left(state.context))
            state.sweeps += chunk
        else:
            least = ROUNDING * graph.magnitude(incumbent.energy)
            for _ in range(chunk):
                frozen = (graph.arrays, state.labels, *state.buffers, 0.0, 1.0, 1, state.scratch)
                _, change = cool(*frozen, time_left(state.context))
                state.calm = 0 if change < -least else state.calm + 1
                if state.calm >= SETTLE:
                    break
        if state.temperature < FUSE * state.hot or state.calm >= SETTLE:
            fused, least = incumbent.wide_labels, 1e-9 * graph.magnitude(incumbent.energy)
            if component_fusion(graph.arrays, fused, state.labels, least) != 0.0 and incumbent.offer(fused):
                improved = fused
        done = False
        if state.calm >= SETTLE:
            done = self._next_cycle(state)
        return Progress(improved, done=done, info={"temperature": state.temperature}, energy=incumbent.energy)

    def _next_cycle(self, state: State) -> bool:
        state.cycle += 1
        state.sweeps = state.calm = 0
        # three ever gentler cycles around the best labelling, then a hot one from a random labelling
        state.temperature = state.hot * 0.5 ** (state.cycle % 4)
        if state.cycle % 4:
            state.labels = state.incumbent.wide_labels
        else:
            rng = np.random.default_rng((state.context.seed, state.cycle))
            state.labels = rng.integers(0, state.graph.arrays.cards).astype(np.int64)
        return state.cycle >= self.cycles

    def finish(self, state: State) -> Final:
        return Final(labels=state.incumbent.wide_labels)
