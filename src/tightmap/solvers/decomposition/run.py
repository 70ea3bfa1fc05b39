"""What subgradient and bundle share: subproblems, a start, labellings on the way, and what is left behind.

A method is a generator that yields a Progress after every round (all subproblems minimised once, or a sweep of the
start) and None in between (solvers/stages.py).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tightmap.energy.duals import Dual, given_messages
from tightmap.errors import OptionError
from tightmap.factors.effort import check_effort
from tightmap.graph.graph import FloatArray, Graph
from tightmap.moves.context import Context, Labels
from tightmap.runtime.pace import TimeUp, check_time, time_left
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.decomposition.ascent import Ascent
from tightmap.solvers.decomposition.forests import DECOMPOSITIONS, decompose
from tightmap.solvers.decomposition.proposals import Proposals, rounded_in_order
from tightmap.solvers.decomposition.split import Places, Solved, Split
from tightmap.solvers.stages import advance

EARLY = 4  # so many rounds at the beginning, and then every ``OFTEN``th one, give a labelling
OFTEN = 5
LAST = 12  # in the end, proposals in a row that bring nothing


@dataclass
class Run:
    """Subproblems of a graph, the best shares so far and their bound."""

    graph: Graph
    context: Context
    split: Split
    proposals: Proposals
    words: str
    shares: FloatArray  # where the bound is highest
    raw: float = -math.inf  # value of the bound there, before allowances
    rounds: int = 0

    def solve(self, shares: FloatArray) -> Solved:
        """Minimise all subproblems; TimeUp when the time limit passes meanwhile."""
        self.rounds += 1
        return self.split.solve(shares, time_left(self.context))

    def keep(self, shares: FloatArray, solved: Solved) -> bool:
        """Remember shares (a copy of them) if their bound is the best so far."""
        if not solved.raw > self.raw:
            return False
        self.shares, self.raw = shares.copy(), solved.raw
        return True

    def gap_above(self, raw: float) -> float:
        """How far a value of the bound is from the best energy, or a guess where no feasible labelling is known."""
        best = self.context.incumbent
        if best is not None and best.feasible and math.isfinite(best.energy):
            return max(best.energy - raw, 0.0)
        return 0.1 * abs(raw - self.graph.constant)

    def candidate(self, solved: Solved, average: Callable[[], FloatArray] | None = None) -> Labels | None:
        """A labelling to offer, in the rounds when one is due."""
        if self.rounds > EARLY and self.rounds % OFTEN:
            return None
        return self.proposals.next(self.shares, solved.labels, None if average is None else average())

    def close(self, solved: Solved, average: FloatArray | None) -> Iterator[Progress | None]:
        """The bound is as good as it gets: proposals until some in a row have not lowered the energy."""
        quiet, best = 0, self.context.incumbent
        while best is not None and quiet < min(LAST, len(self.proposals.kinds)):
            before = best.energy
            for labels in self.proposals.expanded(self.shares, solved.labels, average):
                yield None if labels is None else Progress(labels, solved.bound)
            quiet = 0 if best.energy < before else quiet + 1

    def final(self) -> Final:
        graph, split, shares = self.graph, self.split, self.shares
        return Final(state=Dual(graph, lambda: split.to_messages(shares)), note=self.words)


@dataclass
class State:
    """A run in progress: what is to be done, and what there is once the subproblems are known."""

    work: Iterator[Progress | None]
    run: Run | None = None


def check_options(method: str, decomposition: str, sweeps: int) -> None:
    if decomposition not in DECOMPOSITIONS:
        raise OptionError(f"{method}: decomposition must be one of {', '.join(DECOMPOSITIONS)}, got {decomposition!r}")
    if sweeps < 0:
        raise OptionError(f"{method}: sweeps must be at least 0, got {sweeps}")


def squared_length(run: Run, labels: Places) -> float:
    """||g||^2 of the subgradient g = e_x - (mean over the copies) of minimisers x of all subproblems."""
    split, g = run.split, run.graph.arrays
    total = np.zeros(len(g.unary))
    np.add.at(total, g.offset[split.sub.variable] + labels, 1.0)
    return float(len(labels) - (total**2 / np.repeat(split.copies, g.cards)).sum())


def begin(
    state: State, graph: Graph, init: Init, context: Context, decomposition: str, sweeps: int
) -> Iterator[Progress | None]:
    """Decompose, and find shares to start from: an earlier run's messages, or sweeps of block-coordinate ascent."""
    sub, words = decompose(graph, decomposition, context)
    split = Split(graph, sub)
    check_time(context)
    messages = given_messages(init, graph)
    shares = split.equal_shares() if messages is None else split.from_messages(messages)
    run = Run(graph, context, split, Proposals(graph, split, context), words, shares)
    state.run = run
    yield None
    if messages is not None or sweeps == 0:
        return
    ascent = Ascent(graph)
    for k in range(sweeps):
        labels = bound = None
        if k < EARLY or k % OFTEN == 0 or k == sweeps - 1:
            labels = rounded_in_order(ascent, context)
            yield None
            run.shares = split.from_messages(ascent.messages)
            bound = split.solve(run.shares, time_left(context)).bound
            labels = None if labels is None else run.proposals.fused(labels)
        elif not (ascent.sweep(True, False, time_left(context)) and ascent.sweep(False, False, time_left(context))):
            raise TimeUp
        yield Progress(labels, bound, pending=bound is None)


class DecompositionSolver(Solver):
    """A method on a decomposition: what it does in its rounds is its own, the rest is the same for all."""

    decomposition: str  # options that all of them have
    sweeps: int

    @abstractmethod
    def rounds(self, run: Run) -> Iterator[Progress | None]:
        """From the shares of the start to the end: a Progress after every round, None in between."""

    def check(self, graph: Graph) -> None:
        super().check(graph)
        check_effort(graph, self.name, contraction=False)

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        state = State(iter(()))
        state.work = self._work(state, graph, init, context)
        return state

    def _work(self, state: State, graph: Graph, init: Init, context: Context) -> Iterator[Progress | None]:
        yield from begin(state, graph, init, context, self.decomposition, self.sweeps)
        assert state.run is not None
        yield from self.rounds(state.run)

    def step(self, state: State) -> Progress:
        """One round, or the part of it that fits between two looks at the clock."""
        return advance(state.work)

    def finish(self, state: State) -> Final:
        return Final() if state.run is None else state.run.final()
