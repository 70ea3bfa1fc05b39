"""combilp: proofs for large models whose linear relaxation is nearly tight.

    E(x) = constant + sum_i b_i(x_i) + sum_f c_f(x_f)   for the blocks b_i, c_f that any messages make of the costs
    E(x) >= bound = constant + sum of min B over the blocks B outside of the cores + sum_k min over x_{C_k} of core k

Message passing reparametrises the model (blocks.py), so that the minima of the blocks add up to a large bound.  Where a
labelling attains the minima of all blocks around, nothing is left to decide.  What remains are some small cores, which
are searched exactly:

    1. dual      TRW-S, or SRMP for factors of more than two variables, until the bound stalls
    2. cores     the variables of all blocks that the best labelling does not attain the minimum of; costs of some rings
                 around a core are moved into it first                                              (core.py, search.py)
                 or, where fixing by reduced costs leaves little of the whole model, that alone             (fixing.py)
    3. search    each core is solved exactly, apart from the others
    4. join      the best labellings of the cores with the rest of the best labelling, polished: often a better one
    5. grow      where a factor on the border of a core is above its minimum, its variables join the core; back to 3.
                 Where no factor is, the joined labelling has the energy of the bound: it is optimal

The bound is valid at any time, with any messages and unsolved cores too, and rises above that of the linear relaxation.
Where the cores are too large, the dual goes on for longer and they are looked for again.

References: Savchynskyy, Kappes, Swoboda and Schnoerr 2013; Haller, Swoboda and Savchynskyy 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from tightmap.energy.certificate import Certified
from tightmap.energy.duals import Dual, given_messages
from tightmap.energy.energies import message_offsets
from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Incumbent, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.registry import make_solver
from tightmap.runtime import clock
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.solvers.combilp.blocks import Blocks
from tightmap.solvers.combilp.fixing import Rest, fix_labels
from tightmap.solvers.combilp.search import CoreSearch, Growth
from tightmap.solvers.start_labels import given_or_descended

LARGEST = 1_000_000  # entries of the table of one factor
SPAN = 32  # iterations over which the progress of the dual is measured
STALLED = 0.02  # part of the gap: when it closes less in a span, cores are looked for; every time a quarter of that
FEW, PART, MOST = 1000, 0.1, 20_000  # blocks to search that are few enough: so many, or this part of all; at most
STEPS = 10  # of the search on each core in the first attempt; twice as many in every later one
SECONDS = 5e-8  # for every entry of the messages: about what it takes to begin an attempt
CHECKS = 8  # iterations of the dual until labels are fixed for the first time, and twice as many every time
REST_STEPS = 6  # of the search on what is left, the first time; twice as many for every later one
EXACT = {"cores": False, "elimination": 0}  # cores are small and their bounds nearly tight: plain branch and bound


@dataclass
class State:
    graph: Graph
    context: Context
    incumbent: Incumbent  # the cores are where it does not attain the minima of the blocks
    dual: Solver
    exact: Solver
    left: Any = None  # what the dual left behind when it was last at work
    given: bool = False  # messages to begin with, and nothing has been tried yet
    inner: Any = None  # its state while it is
    converged: bool = False
    marks: list[tuple[int, float]] = field(default_factory=list)  # iterations and bounds of the dual
    attempt: int = 0
    steps: int = 0  # of the searches on cores in this attempt
    search: CoreSearch | None = None
    rest: Rest | None = None  # what fixing has left, while it is searched
    rests: int = 0  # how many there were
    checked: int = 0  # iterations of the dual when labels were last fixed
    passes: int = 0  # iterations of the dual in all
    most: int = STEPS
    iterations: int = 0
    bound: Certified = field(default_factory=lambda: Certified(-math.inf))
    done: bool = False
    story: str = ""


@dataclass(frozen=True)
class CombiLP(Solver):
    """Options of the combination of dual and exact search.

    patience  attempts with cores that are given up early, before message passing has converged; 0: it converges first
    cores     whether cores are looked for
    fixing    whether labels are fixed by reduced costs, so that what is left of the whole model may be searched
    """

    patience: int = 4
    cores: bool = True
    fixing: bool = True

    name: ClassVar[str] = "combilp"
    summary: ClassVar[str] = "message passing and exact search on the small cores it leaves: proofs of large models"
    capabilities: ClassVar[Capabilities] = Capabilities(small_tables=True, bounds=True)

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise OptionError(f"combilp: patience must be at least 0, got {self.patience}")

    def _dual(self, graph: Graph) -> Solver:
        return make_solver("trws", {}) if graph.order <= 2 else make_solver("srmp", {"edges": "minimal"})

    def check(self, graph: Graph) -> None:
        g = graph.arrays
        if graph.m:
            size = np.add.reduceat(np.log2(g.cards[g.scope].astype(np.float64)), g.scope_start[:-1])
            if size.max() > math.log2(1.01 * LARGEST):
                first = int(np.argmax(size > math.log2(1.01 * LARGEST)))
                raise ModelError(
                    f"method 'combilp' takes factors of at most {LARGEST} table entries, but the factor on variables "
                    f"{graph.original_scope(first)} has about {2.0 ** size[first]:.3g}"
                )
        try:
            self._dual(graph).check(graph)
        except ModelError as error:
            raise ModelError(f"method 'combilp' begins with another one, and {error}") from None

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        incumbent = context.incumbent_of(graph)
        incumbent.offer(given_or_descended(graph, init, context))
        with clock.stopped():
            dual, exact = self._dual(graph), make_solver("exact", dict(EXACT))
        state = State(graph, context, incumbent, dual, exact)
        if isinstance(init.state, Dual):
            state.left, state.given = init.state, True
        return state

    # ------------------------------------------------------------------------------------------- steps

    def step(self, state: State) -> Progress:
        if state.rest is not None:
            self._advance_rest(state, state.rest)
            made = 1
        elif state.search is None:
            made = self._advance_dual(state)
        else:
            self._advance_cores(state, state.search)
            made = 1
        state.iterations += made
        best = state.incumbent
        if best.proven_by(state.bound):
            state.done = True
        pending = (state.search is not None or state.rest is not None) and not state.done
        return Progress(best.wide_labels, state.bound, state.done, made, pending=pending, energy=best.energy)

    def adopt(self, state: State, labels: Labels) -> None:
        """A better labelling of another method: the cores are looked for again around it."""
        self._offer(state, labels)

    def _offer(self, state: State, labels: Labels | None, known: float | None = None) -> None:
        if state.incumbent.offer(labels, known) and state.search is not None:
            state.search.changed = True

    def _raise(self, state: State, bound: float | None) -> None:
        if bound is not None and bound > state.bound:
            state.bound = bound if isinstance(bound, Certified) else Certified(bound)

    # ------------------------------------------------------------------------------------------- the dual

    def _advance_dual(self, state: State) -> int:
        """A step of message passing, or the first one with cores; returns the iterations made."""
        given, state.given = state.given, False
        if given and (self._fix(state) or self._begin_attempt(state)):
            return 1
        if state.done:
            return 1
        if state.inner is None:
            context = replace(
                state.context, incumbent=None, shared=lambda: state.context.iterations_left(state.iterations)
            )
            init = Init(labels=state.incumbent.wide_labels, state=state.left)
            state.inner = state.dual.start(state.graph, init, context)
            state.marks = []
        progress = state.dual.step(state.inner)
        self._offer(state, progress.labels, progress.energy)
        self._raise(state, progress.bound)
        made = progress.iterations + (state.marks[-1][0] if state.marks else 0)
        if progress.bound is not None:
            state.marks.append((made, float(progress.bound)))
        elif state.marks:
            state.marks[-1] = (made, state.marks[-1][1])
        state.passes += progress.iterations
        if progress.done:
            state.converged = True
        stalled = self.cores and state.attempt < self.patience and self._stalled(state)
        due = self.fixing and state.passes >= max(CHECKS, 2 * state.checked)
        if progress.done or stalled or due:
            self._rest(state, progress.done or stalled)
        return progress.iterations

    def _stalled(self, state: State) -> bool:
        """Whether the bound has risen by next to nothing of the gap since some iterations ago."""
        now, bound = state.marks[-1] if state.marks else (0, -math.inf)
        before = [low for made, low in state.marks if made <= now - SPAN]
        gap = state.incumbent.energy - bound
        return bool(before) and bound - before[-1] <= STALLED * 0.25**state.attempt * gap

    def _rest(self, state: State, attempt: bool) -> None:
        """Message passing pauses, or ends, and leaves its messages; ``attempt``: cores are looked for, too."""
        final = state.dual.finish(state.inner)
        state.inner = None
        self._offer(state, final.labels)
        self._raise(state, final.bound)
        state.left = final.state
        if not (self._fix(state) or (attempt and self._begin_attempt(state))) and state.converged:
            state.done = True

    # ------------------------------------------------------------------------------------------- what fixing leaves

    def _fix(self, state: State) -> bool:
        """Fix labels by the messages of the dual; whether there is a search on what is left."""
        messages = given_messages(Init(state=state.left), state.graph) if self.fixing else None
        entries = len(messages) if messages is not None else 0
        if messages is None or state.context.remaining() < 4.0 * SECONDS * entries:
            return False
        state.checked = state.passes
        found = fix_labels(Blocks(state.graph, messages.copy()), state.incumbent)
        if isinstance(found, Rest):
            state.rest = found
            state.rests += 1
            state.steps = 0
        elif found is not None:
            self._raise(state, found)
            state.done = state.incumbent.proven_by(state.bound)
        return state.rest is not None

    def _advance_rest(self, state: State, rest: Rest) -> None:
        """A step of the search on what is left; in the end it has the proof, or the dual goes on."""
        state.story = f"{rest.removed} of {len(state.graph.arrays.unary)} labels fixed"
        before = rest.core.value
        rest.core.step(state.exact, state.context)
        state.steps += 1
        if rest.core.value < before:
            labels = rest.outward()
            self._offer(state, labels)
            self._offer(state, local_minimum(state.graph, labels, state.context))
        self._raise(state, rest.bound(state.graph))
        if rest.core.solved:
            state.done = state.incumbent.proven_by(state.bound) or state.converged
            state.rest = None
        elif state.steps >= REST_STEPS << min(state.rests, 20):
            if not state.converged:
                state.rest = None
            elif state.context.deadline is None:  # otherwise there is nothing better to do with the time
                state.done = True

    # ------------------------------------------------------------------------------------------- the cores

    def _begin_attempt(self, state: State) -> bool:
        """Cores around the best labelling; False where there is too much to search, or too little time."""
        graph = state.graph
        if not self.cores:
            return False
        entries = int(message_offsets(graph)[-1]) if graph.n else 0
        messages = given_messages(Init(state=state.left), graph)
        if messages is None or state.context.remaining() < 4.0 * SECONDS * entries:
            return False
        search = CoreSearch(graph, Blocks(graph, messages.copy()), state.incumbent)
        self._raise(state, search.bound)
        state.most = STEPS << min(state.attempt, 20)
        state.steps = 0
        state.attempt += 1
        if not search.look(self._limit(state)):
            return False
        state.search = search
        return True

    def _limit(self, state: State) -> int:
        """So many blocks to search are few enough."""
        return min(MOST, max(FEW, int(PART * (state.graph.n + state.graph.m))))

    def _advance_cores(self, state: State, search: CoreSearch) -> None:
        if search.changed:
            if not search.look(self._limit(state)):
                self._give_up(state, search)
                return
        elif search.step(state.exact, state.context, state.most):
            state.steps += 1
        elif not search.improve(state.context):
            growth = search.grow()
            unsolved = any(not core.solved for core in search.cores)
            if growth is Growth.TOO_LARGE or (growth is Growth.NONE and unsolved):
                self._give_up(state, search)
            elif growth is Growth.NONE:
                state.done, search.changed, search.strict = search.strict, True, True
        self._raise(state, search.bound)
        state.story = self._describe(search)
        search.gaps.append(state.incumbent.energy - state.bound)
        if not search.worthwhile and not state.done:
            if state.context.shared is not None and state.converged:
                state.done = not search.advancing  # others can make more of the time
            elif not state.converged:
                state.search = None

    def _give_up(self, state: State, search: CoreSearch) -> None:
        """These cores are too large: on with the dual, or with more patience where that has converged."""
        if not state.converged:
            state.search = None
        elif state.context.limited and any(not core.solved for core in search.cores):
            state.most *= 2
        else:
            state.done = True

    def _describe(self, search: CoreSearch) -> str:
        sizes = [len(core.variables) for core in search.cores]
        open_ = sum(not core.solved for core in search.cores)
        text = f"{len(sizes)} core{'s' * (len(sizes) != 1)} of {sum(sizes)} variables"
        text += f" (largest {max(sizes)})" if sizes else ""
        text += f", {search.rounds} round{'s' * (search.rounds != 1)}"
        return text + (f", {open_} not solved" if open_ else "")

    def finish(self, state: State) -> Final:
        if state.inner is not None:
            final = state.dual.finish(state.inner)
            self._offer(state, final.labels)
            self._raise(state, final.bound)
            state.left = final.state
        return Final(labels=state.incumbent.wide_labels, bound=state.bound, state=state.left, note=state.story)
