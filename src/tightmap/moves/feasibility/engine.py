"""Find a labelling that breaks no hard constraint, prove that there is none, or say which labels can never be used.

Costs play no part, except that cheap labels are tried first: this is constraint satisfaction.  The hard constraints of
a graph become clauses and tables of allowed tuples (constraints.py).  They are propagated to a fixed point, which
removes labels that no feasible labelling has (propagation.py); then labels are decided one after the other, and every
failure leaves a clause behind that keeps the search from failing for the same reason again (learn.py, search.py).  So
this ends, with a labelling or with a proof: there is none when a contradiction follows without any decision.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import Certified
from tightmap.graph.graph import Graph
from tightmap.moves.feasibility.constraints import Constraints, broken_by, constraints
from tightmap.moves.feasibility.layout import empty_store, rules, with_more_variables
from tightmap.moves.feasibility.learn import add_clause
from tightmap.moves.feasibility.literal_trail import (
    AT,
    FIRST,
    GIVEN,
    JOINS,
    LENGTH,
    SERVED,
    Ints,
    believe,
    undo,
)
from tightmap.moves.feasibility.propagation import FINE, propagate
from tightmap.moves.feasibility.search import FOUND, FULL, IMPOSSIBLE, MANY, REFUSED, RESTART_UNIT, rebuild, search
from tightmap.runtime import clock
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER

Labels = npt.NDArray[np.int64]
Wishes = npt.NDArray[np.int32]  # literals
SLICE = 2000  # failures of one call of the kernel
CLAUSES = 4000  # learnt clauses that are kept to begin with ...
MORE = 500  # ... and how many more each time that some are forgotten
ENDLESS = 1 << 60
NO_WISHES = np.zeros(0, np.int32)
GLUE = 2  # clauses that join no more levels than this are never forgotten


@compiled
def _add(r, s, literals):
    """One more clause, at level 0; False when that is a contradiction."""
    undo(r, s, 0)
    length = 0
    for lit in literals:
        if s.value[lit] > 0:
            return True
        if s.value[lit] == 0:
            s.learnt[length] = lit
            length += 1
    if length == 0:
        return False
    if length > 1:
        add_clause(s, length, 0)
    else:
        believe(r, s, s.learnt[0], GIVEN)
    return True


@compiled
def _demand(r, s, literals):
    """Make literals true at level 0; False when that is a contradiction."""
    undo(r, s, 0)
    for lit in literals:
        if s.value[lit] < 0:
            return False
        if s.value[lit] == 0:
            believe(r, s, lit, GIVEN)
    return True


@compiled
def _propagate_at_root(r, s):
    """Draw all conclusions at level 0; False when there is a contradiction."""
    undo(r, s, 0)
    return propagate(r, s) == FINE


@compiled
def _starts(arena, used, out):
    """Where the clauses of an arena start."""
    at = 0
    count = 0
    while at < used:
        out[count] = at
        count += 1
        at += FIRST + arena[at + LENGTH]
    return count


class Engine:
    """Variables with labels, numbered through, constraints on them, and what is known so far."""

    def __init__(self, offset: Ints, cost: npt.NDArray[np.float64], given: Constraints) -> None:
        self.given = given
        self.rules = rules(offset, cost, given)
        self.store, starts = empty_store(self.rules, given)
        self.impossible = given.impossible  # there is no labelling
        self.labels: Labels | None = None  # the last one found
        self.core: Wishes = NO_WISHES  # wishes that contradict each other
        self._wishes = NO_WISHES
        self.store.counters[0].until_restart, self.store.counters[0].learnt_limit = RESTART_UNIT, CLAUSES
        rebuild(self.store, np.ones(len(starts), np.uint8), starts)
        self.demand(self.rules.literal[~given.alive] ^ 1)

    @property
    def failures(self) -> int:
        return int(self.store.counters[0].conflicts)

    @property
    def work(self) -> int:
        """What was done so far, in units of about a nanosecond."""
        return int(self.store.counters[0].work)

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """(labels,) False where no feasible labelling has that label, as far as is known."""
        lit, s = self.rules.literal, self.store
        return ~((s.value[lit] < 0) & (s.info[lit >> 1, AT] == 0))

    def prefer(self, labels: npt.NDArray[np.integer]) -> None:
        """Try these labels of the first variables first from now on."""
        undo(self.rules, self.store, 0)
        self.store.phase[: len(labels)] = self.rules.offset[: len(labels)] + labels

    def propagate(self) -> bool:
        """All that follows without a decision; False when there is no feasible labelling."""
        if not self.impossible:
            self.impossible = not _propagate_at_root(self.rules, self.store)
        return not self.impossible

    def enlarge(self, more: int) -> None:
        """So many more variables of two labels, on which there is no constraint; nothing is decided for them."""
        undo(self.rules, self.store, 0)
        self.rules, self.store = with_more_variables(self.rules, self.store, more)

    def add_clause(self, literals: npt.NDArray[np.int32]) -> None:
        """One of these literals must be true."""
        self._make_room()
        self.impossible = self.impossible or not _add(self.rules, self.store, literals)

    def demand(self, literals: npt.NDArray[np.int32]) -> None:
        """All of these literals must be true."""
        self.impossible = self.impossible or not _demand(self.rules, self.store, literals)

    def forbid(self, labels: Ints) -> bool:
        """Labels (numbered through) that must not come together; False when nothing is left then."""
        self.add_clause(self.rules.literal[labels] ^ 1)
        return self.propagate()

    def run(
        self,
        seconds: float = EVER,
        failures: float = EVER,
        wishes: Wishes = NO_WISHES,
        work: int = ENDLESS,
    ) -> bool | None:
        """Search on.  True: ``labels`` is feasible; False: there is none; None: time, failures or work are used up.

        With wishes, literals that shall be true, False also where not all of them can be granted: see ``core``.
        """
        end = clock.now() + seconds
        until, most = self.failures + failures, self.work + work
        if self.impossible:
            return False
        if wishes is not self._wishes:
            undo(self.rules, self.store, 0)
            self._wishes = wishes
        while True:
            left = int(min(SLICE, until - self.failures))
            status = search(self.rules, self.store, wishes, left, most - self.work, end - clock.now())
            if status == IMPOSSIBLE:
                self.impossible = True
                return False
            if status == REFUSED:
                self.core = self.store.learnt[: self.store.counters[0].core_length].copy()
                return False
            if status == FOUND:
                self.labels = self.store.taken - self.rules.offset[:-1]
                if self._accept(self.labels):
                    return True
                if self.impossible:
                    return False
            elif status == FULL:
                self._make_room()
            elif status == MANY:
                self._forget()
            elif clock.now() >= end or self.failures >= until or self.work > most:
                return None

    def _accept(self, labels: Labels) -> bool:
        """Whether a labelling keeps what is not among the constraints; if not, this is a constraint now."""
        return True

    def _make_room(self) -> None:
        s = self.store
        while len(s.arena) - s.counters[0].arena_used < len(s.value) + FIRST:
            s = self.store = s._replace(arena=np.concatenate((s.arena, np.zeros_like(s.arena))))

    def _forget(self) -> None:
        """Half of the learnt clauses go: those that join many levels and have not served for long."""
        s = self.store
        undo(self.rules, s, 0)
        used = int(s.counters[0].arena_used)
        out = np.empty(used // FIRST + 1, np.int64)
        starts = out[: _starts(s.arena, used, out)]
        joins, served = s.arena[starts + JOINS], s.arena[starts + SERVED]
        rank = np.lexsort((-served, joins))
        rank = rank[(joins > GLUE)[rank]]
        keep = np.where(joins > 0, 2, 1).astype(np.uint8)
        keep[rank[len(rank) // 2 :]] = 0
        rebuild(s, keep, starts)
        s.counters[0].learnt_limit += MORE


class Feasibility(Engine):
    """The hard constraints of a graph.

    ::

        problem = Feasibility(graph)
        problem.propagate()    # False: no labelling; labels that can never be used are gone from problem.alive
        problem.run(seconds)   # True: problem.labels is one; False: there is none; None: time is up, call again
    """

    def __init__(self, graph: Graph, labels: npt.NDArray[np.integer] | None = None) -> None:
        """``labels``: a labelling to stay close to."""
        super().__init__(graph.arrays.offset, graph.arrays.unary, constraints(graph))
        self.graph = graph
        if labels is not None:
            self.prefer(labels)

    def _accept(self, labels: Labels) -> bool:
        broken = broken_by(self.graph, self.given.rest, labels)
        if broken is not None:
            self.forbid(broken)
        return broken is None

    def story(self) -> str:
        """One sentence for people."""
        gone = int((~self.alive).sum())
        told = f"hard constraints: {gone} of {len(self.rules.literal)} labels removed, "
        if self.impossible:
            return told + f"no feasible labelling, by {self.failures} failures"
        return told + f"{'no' if self.labels is None else 'a'} feasible labelling after {self.failures} failures"


def infeasible_bound(graph: Graph) -> Certified:
    """The bound that says that a graph has no feasible labelling: every other one costs more."""
    return Certified(graph.hopeless)
