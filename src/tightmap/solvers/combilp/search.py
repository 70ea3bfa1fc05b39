"""The search around a labelling: cores where it does not attain the minima of the blocks, grown until all agree.

Let x be a labelling and e_B(x) = (cost of block B at x) - min B >= 0 its excess, so that E(x) - bound = sum_B e_B(x).
Blocks without excess need no search.  The variables of the others are the cores C_1, C_2, ...: connected, no factor
has its variables in two of them and nowhere else.  For any messages and any cores

    bound = constant + sum of min B over the blocks outside of all cores + sum_k min over x_{C_k} of core k  <=  min E,

and where the best labellings of the cores, joined with x outside, attain the minima of the factors on the borders, the
joined labelling has that energy: it is optimal.  Where they do not, the variables of the factor join the core.

Excess is left alone where all of it together cannot matter: less than the rounding error of the bound, or less than
what rounding up to the next possible energy gives back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from tightmap.energy.certificate import SHARE, UNIT, Certified, certify
from tightmap.graph.graph import FloatArray, Graph
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.coordinate_descent import settle_all
from tightmap.solvers.base import Solver
from tightmap.solvers.combilp.blocks import Blocks
from tightmap.solvers.combilp.core import Core, Neighbours, make_core, press

ENTRIES = 5_000_000  # of all tables of a core: a larger one is not searched
RINGS = 4  # around a core, whose costs are moved into it
LATELY = 24  # steps that should have closed ...
CLOSED = 0.1  # ... this part of the gap; otherwise the dual is better continued first
# Steps after which cores that are solved one after the other are still too many.  tsukuba after 560 iterations of
# TRW-S: 38 steps until the last one agrees with its border, and until then neither bound nor energy changes
AT_MOST = 10 * LATELY
BUDGET = 0.25  # of a quantum: excess that is left alone


class Growth(Enum):
    """What came of comparing cores with what is around them."""

    NONE = 0  # they agree
    SOME = 1
    TOO_LARGE = 2  # a core would have to grow beyond what can be searched


@dataclass
class CoreSearch:
    """Cores of one reparametrisation, grown around the labelling of the incumbent."""

    graph: Graph
    blocks: Blocks
    incumbent: Incumbent
    cores: list[Core] = field(default_factory=list)
    rounds: int = 0
    changed: bool = False  # the labelling is not the one that the cores were made for
    base: tuple[float, float] = (0.0, 0.0)  # sum of the minima of all blocks, and what rounding may have added
    bound: Certified = field(default_factory=lambda: Certified(-math.inf))
    strict: bool = False  # no excess is left alone: where messages are so large that rounding hides too much
    gaps: list[float] = field(default_factory=list)  # energy - bound after every step
    last_solved: int = 0  # the number of steps when a core was solved

    def __post_init__(self) -> None:
        self.near = Neighbours(self.graph)
        self._sum()
        self.raise_bound()

    # ------------------------------------------------------------------------------------------- the bound

    def _sum(self) -> None:
        self.base = self.blocks.sum()

    def raise_bound(self) -> None:
        """The bound of all blocks with what the searches on the cores have added."""
        graph, (low, wrong) = self.graph, self.base
        used = [core for core in self.cores if core.gain > core.wrong]
        raw = math.fsum((graph.constant, low, *(v for core in used for v in (core.bound, -core.least))))
        wrong += 4.0 * UNIT * math.fsum(abs(core.least) + abs(core.bound) for core in used)
        found = certify(graph, raw, wrong)
        lost = math.fsum(core.error + core.wrong for core in used)
        if found > self.bound:
            rounded = found > raw - wrong
            self.bound = found if rounded else Certified(float(found), found.error + SHARE * lost)

    # ------------------------------------------------------------------------------------------- where to search

    @property
    def budget(self) -> float:
        """Excess that may be left alone: with it the bound still proves what it would without."""
        return 0.0 if self.strict else max(self.base[1], BUDGET * self.graph.quantum)

    def _kept(self, excess: FloatArray, budget: float) -> np.ndarray:
        """Which of these are to be looked at: all but the smallest, which together are at most the budget."""
        order = np.argsort(excess, kind="stable")
        ignored = np.cumsum(excess[order]) <= budget
        kept = np.ones(len(excess), np.bool_)
        kept[order[ignored]] = False
        return kept

    def undecided(self, most: int) -> set[int] | None:
        """Variables of all blocks with excess; None where there are more than ``most`` such blocks."""
        b = self.blocks
        own, joint = b.excess(self.incumbent.wide_labels, b.all_v, b.all_f)
        some = np.flatnonzero(np.concatenate((own, joint)) > 0.0)
        both = np.concatenate((own, joint))[some]
        found = some[self._kept(both, 0.5 * self.budget)]
        if len(found) > most:
            return None
        out = set(found[found < self.graph.n].tolist())
        for f in (found[found >= self.graph.n] - self.graph.n).tolist():
            out.update(self.near.members(f))
        return out

    def look(self, most: int) -> bool:
        """Cores around the present labelling; those that still matter stay as they are.  False: there is too much."""
        self.changed = False
        wanted = self.undecided(most)
        if wanted is None:
            return False
        for core in self.cores:
            if not core.members.isdisjoint(wanted):
                wanted |= core.members
        return self._arrange(wanted)

    def _arrange(self, wanted: set[int]) -> bool:
        """One core for every component of these variables; unchanged ones stay.  False: one is too large."""
        before = {frozenset(core.members): core for core in self.cores}
        parts = self.near.components(wanted)
        if any(self.near.entries(part) > ENTRIES for part in parts):
            return False
        fresh = [part for part in parts if frozenset(part) not in before]
        for part in fresh:
            press(self.blocks, self.near, part, RINGS, wanted - part)
        best = self.incumbent.wide_labels
        self.cores = [before.get(frozenset(part)) or make_core(self.blocks, self.near, part, best) for part in parts]
        self._sum()
        self.raise_bound()
        return True

    # ------------------------------------------------------------------------------------------- a round

    def step(self, solver: Solver, context: Context, most: int) -> bool:
        """A part of the search on a core with less than ``most`` steps; False when there is none."""
        waiting = [core for core in self.cores if not core.solved and core.steps < most]
        if not waiting:
            return False
        core = min(waiting, key=lambda core: (core.steps, len(core.variables)))
        core.step(solver, context)
        if core.solved:
            self.last_solved = len(self.gaps)
        self.raise_bound()
        return True

    @property
    def worthwhile(self) -> bool:
        """Whether the last steps have closed a good part of the gap."""
        return len(self.gaps) <= LATELY or self.gaps[-1] <= (1.0 - CLOSED) * self.gaps[-1 - LATELY]

    @property
    def advancing(self) -> bool:
        """Whether cores are solved, and grow, all the time: the last of them may be the proof."""
        return len(self.gaps) - self.last_solved <= LATELY and len(self.gaps) <= AT_MOST

    def joined(self) -> Labels:
        labels = self.incumbent.wide_labels
        for core in self.cores:
            labels[core.variables] = core.labels
        return labels

    def improve(self, context: Context) -> bool:
        """Whether the labellings of the cores lead to a better one of the whole model, which is kept."""
        joined, better = self.joined(), self.incumbent.wide_labels
        if np.array_equal(joined, better):
            return False
        polished, dirty = joined.copy(), np.zeros(self.graph.n, np.uint8)
        dirty[sorted(self.near.around(np.flatnonzero(joined != better).tolist()))] = 1
        settle_all(self.graph, polished, dirty, context)
        for labels in (joined, polished):
            component_fusion(self.graph.arrays, better, labels)
        return self.offer(better)

    def offer(self, labels: Labels) -> bool:
        """Keep a labelling if it is better; the cores are then to be looked for again."""
        better = self.incumbent.offer(labels)
        self.changed = self.changed or better
        return better

    def grow(self) -> Growth:
        """Solved cores take in the variables of the factors on their borders that disagree with them."""
        solved = [core for core in self.cores if core.solved]
        labels = self.joined()
        inside = np.concatenate([np.zeros(0, np.int64), *(core.factors for core in solved)])
        border = np.setdiff1d(self.near.factors(sorted(set().union(*(core.members for core in solved)))), inside)
        _, excess = self.blocks.excess(labels, np.zeros(0, np.int64), border)
        found = border[self._kept(excess, 0.5 * self.budget)].tolist()
        members = set().union(*(core.members for core in self.cores))
        wanted = members.union(*(self.near.members(f) for f in found))
        if wanted == members:
            return Growth.NONE
        self.rounds += 1
        return Growth.SOME if self._arrange(wanted) else Growth.TOO_LARGE
