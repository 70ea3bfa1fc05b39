"""alpha-fusion for models of any order: expansion moves by roof duality.

    x_i <- z_i where b_i = 1,   b = argmin over {0, 1}^n of E(labels z_i where b_i = 1, x_i elsewhere),

where z is the labelling that is proposed.  The energy is a quadratic function of b (graphcut/quadratise.py), of which
roof duality minimises as much as it can (graphcut/qpbo.py).

For one label after the other the current labelling is fused with the constant one (variables without that label keep
theirs).  Unlike a cut, roof duality needs nothing of the tables: what it labels is optimal, the rest keeps b_i = 0, and
the energy never rises.  Factors of three and more variables are made quadratic by auxiliary variables.  Two kinds of
proposals z besides the constants help where labels are ordered or the start is poor: the labelling shifted by one up
and down, and the descent from random labels.

Reference: Fix, Gruber, Boros and Zabih 2011; Ishikawa 2011.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tightmap.energy.energies import energy
from tightmap.errors import OptionError
from tightmap.graph.graph import Graph
from tightmap.graphcut.fusion import fuse_proposal
from tightmap.graphcut.quadratise import MAX_ARITY
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime import clock
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.start_labels import given_or_descended

STEP_SECONDS = 0.1  # seconds of moves after which a step ends
# With a time limit: part of it that one cut may take at first.  A cut that takes longer is given up, and the next one
# may take twice as long: among several methods one that cannot be interrupted would have all the time.  Squares of
# nine pixels that are to agree, 10 s, auto: three cuts took 4.5 s, and srmp, which proves it in 3 s, did not end.
ONE_CUT = 0.03


@dataclass
class State:
    graph: Graph
    context: Context
    labels: Labels
    energy: float
    rng: np.random.Generator
    proposals: int  # in one sweep
    position: int = 0
    quiet: int = 0  # proposals in a row that brought nothing
    taken: int = 0  # proposals that lowered the energy
    patience: float = float("inf")  # seconds that one cut may take
    left: Labels | None = None  # the labelling that was left for a better one of another method: the next proposal


@dataclass(frozen=True)
class Fusion(Solver):
    """Options of fusion moves.

    reduction  of factors on three and more variables: "fix" or "hocr"
    shifts     also propose the labelling shifted by one label up and down
    random     random proposals (each improved by coordinate descent) per sweep
    settle     decide a limited number of unlabelled variables one by one instead of keeping them
    """

    reduction: str = "fix"
    shifts: bool = True
    random: int = 0
    settle: bool = False

    name: ClassVar[str] = "fusion"
    summary: ClassVar[str] = "alpha-fusion: moves by roof duality for factors of any order"
    capabilities: ClassVar[Capabilities] = Capabilities(largest_order=MAX_ARITY, random=True)

    def __post_init__(self) -> None:
        if self.reduction not in ("fix", "hocr"):
            raise OptionError(f"fusion: reduction must be 'fix' or 'hocr', got {self.reduction!r}")
        if self.random < 0:
            raise OptionError(f"fusion: random must be at least 0, got {self.random}")

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        labels = given_or_descended(graph, init, context)
        count = graph.max_labels + 2 * self.shifts + self.random
        patience = ONE_CUT * context.remaining() if context.deadline is not None else float("inf")
        return State(graph, context, labels, energy(graph, labels), context.rng(), count, patience=patience)

    def _proposal(self, state: State, number: int) -> Labels:
        cards = state.graph.arrays.cards.astype(np.int64)
        labels = state.graph.max_labels
        if number < labels:
            return np.where(cards > number, number, state.labels)
        if self.shifts and number < labels + 2:
            return np.clip(state.labels + (1 if number == labels else -1), 0, cards - 1)
        return local_minimum(state.graph, state.rng.integers(0, cards), state.context, 3)

    def adopt(self, state: State, labels: Labels) -> None:
        """Go on from a better labelling, and take what is better in the present one over to it."""
        value = energy(state.graph, labels)
        if value < state.energy:
            state.left, state.labels, state.energy, state.quiet = state.labels, labels.copy(), value, 0

    def step(self, state: State) -> Progress:
        begin = time.perf_counter()
        rng = state.rng if self.settle else None
        while True:
            crossing = state.left is not None
            proposal = self._proposal(state, state.position) if state.left is None else state.left
            state.left = None
            labels, in_time = self._fuse(state, proposal, rng)
            value = energy(state.graph, labels)
            if not in_time:
                state.quiet = 0  # nothing is known of this proposal
            if value < state.energy:
                state.labels, state.energy, state.quiet = labels, value, 0
                state.taken += 1
            elif in_time:
                state.quiet += 1
            if not crossing:
                state.position = (state.position + 1) % state.proposals
            done = state.quiet >= state.proposals and state.context.remaining() > 0  # else it may have been cut short
            swept = state.position == 0 and not crossing
            if done or swept or time.perf_counter() - begin > STEP_SECONDS or state.context.remaining() <= 0:
                return Progress(labels=state.labels, done=done, iterations=int(swept or done))

    def _fuse(self, state: State, proposal: Labels, rng: np.random.Generator | None) -> tuple[Labels, bool]:
        """The mixture, and whether there was time for it."""
        context = state.context
        if context.deadline is not None and state.patience < context.remaining():
            context = replace(context, deadline=clock.now() + state.patience)
        labels = fuse_proposal(state.graph, state.labels, proposal, self.reduction, rng, context)
        in_time = context.remaining() > 0.0
        if not in_time:
            state.patience *= 2.0
        return labels, in_time

    def finish(self, state: State) -> Final:
        return Final(labels=state.labels, note=f"{state.taken} fusions lowered the energy")
