"""Lower bounds from contradictions: which functions cannot all be free of cost?

With costs as Booleans (levels.py), wish that as many as possible are false and ask the constraint engine.  Either there
is such a labelling, or it names wishes b_1, ..., b_n that contradict each other, a core.  At least one of them has to
be given up, which costs at least the smallest weight w among them.  So c0 rises by w, the weights of all of them fall
by w, and what it costs to give up more than one is put into new wishes (Narodytska and Bacchus 2014):

    sum_i w [b_i is broken] = w + sum_i w [b_i is broken and one of b_{i+1}, ..., b_n is]        where one is broken.

The sum of all weights that are broken, plus c0, stays what a labelling costs, so c0 is a lower bound at any time, and a
labelling that grants all wishes is optimal.  Large weights are wished for first, which gives labellings on the way; a
wish whose weight closes the gap to the best labelling becomes a constraint.

This is strong where the costs are few and the constraints many (planning, scheduling, diagnosis), where soft arc
consistency sees nothing, and weak where every function costs something, as in images.
"""

from __future__ import annotations

import numpy as np

from tightmap.energy.certificate import Certified
from tightmap.moves.context import Labels
from tightmap.moves.feasibility.engine import Engine, Wishes
from tightmap.moves.feasibility.literal_trail import push
from tightmap.runtime import clock
from tightmap.solvers.exact.levels import levels
from tightmap.solvers.exact.network import Network

SPARE = 20_000  # Booleans for new wishes, to begin with
MOST = 400_000  # variables, of about 300 bytes each, from which on there are no more
TRIMS = 4  # most attempts to make a core smaller by asking again
TRIM_FAILURES = 100  # of each of them
SMALL = 40  # wishes of a core that are left out one by one


class Cores:
    """The search by cores of one network, which must not change.  Costs are in its units, without its constant."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self._lower = 0  # no labelling that meets all demands costs less
        self.best = self.goal = net.upper - net.constant  # labellings of the goal or more are of no interest
        self.labels: Labels | None = None
        self.cores = 0
        self._mark = (0, 0)  # the bound when a tenth of the gap was last closed, and the work up to then
        self.proven = False  # no labelling is cheaper than the best one
        self.problem = problem = levels(net, self.goal, SPARE)
        self.closed = problem is None  # nothing more to do
        if problem is None:
            return
        self._lower = problem.floor
        cost = np.zeros(int(problem.offset[-1]))
        np.add.at(cost, problem.labels, np.array(problem.weights, dtype=np.float64))
        self.engine = Engine(problem.offset, cost, problem.given)
        s = self.engine.store
        s.counters[0].open_variables = problem.used
        s.where[problem.used :] = -1
        self.next = problem.used  # the next free variable
        self.weight: dict[int, int] = {}  # literal that shall be true -> weight
        for at, w in zip(problem.labels.tolist(), problem.weights, strict=True):
            lit = int(self.engine.rules.literal[at]) ^ 1
            self.weight[lit] = self.weight.get(lit, 0) + w
        self.least = max(self.weight.values(), default=0)
        self._lower_least()
        self._wish()
        self._mark = self.lower, 0

    @property
    def lower(self) -> int:
        """No labelling costs less: one that does not meet the demands costs the goal or more."""
        return min(self._lower, self.goal)

    @property
    def bound(self) -> Certified:
        units = self.lower
        if self.net.whole:  # round up to the next possible cost
            grain, constant = self.net.grain, self.net.constant
            units = -(-(units + constant) // grain) * grain - constant
        return self.net.bound(units)

    @property
    def failures(self) -> int:
        return 0 if self.problem is None else self.engine.failures

    @property
    def work(self) -> int:
        return 0 if self.problem is None else self.engine.work

    @property
    def idle(self) -> int:
        """Work since the bound last rose by a tenth of the gap; a gap that better labellings close does not count."""
        if 10 * (self.lower - self._mark[0]) >= self.best - self._mark[0]:
            self._mark = self.lower, self.work
        return self.work - self._mark[1]

    def offer(self, labels: Labels) -> bool:
        """Only labellings that are cheaper than this one are of interest from now on; False when it is no news."""
        if self.problem is None:
            return False
        cost = self._cost(labels)
        if cost >= self.best:
            return False
        self.best, self.goal = cost, min(self.goal, cost - self.net.grain + 1)
        self.engine.prefer(labels[np.array(self.problem.variables, dtype=np.int64)])
        self._harden()
        return True

    def step(self, seconds: float, work: int) -> bool:
        """Search on for so much work or until a core is found; True when ``labels`` is better than all before."""
        if self.closed:
            return False
        end = clock.now() + seconds
        found = self.engine.run(seconds, wishes=self.wishes, work=work)
        if found:
            everything = all(w >= self.least for w in self.weight.values())  # before some wishes become demands
            better = self._take()
            if everything:
                self.closed = self.proven = True
                return better
            self._lower_least()
            self._wish()
            return better
        if found is False:
            if self.engine.impossible:
                self._finish()
            else:
                self._relax(self._trim(self.engine.core, end, work))
        return False

    def _finish(self) -> None:
        """No labelling is below the goal."""
        self._lower = max(self._lower, self.goal)
        self.closed = self.proven = True

    def _wish(self) -> None:
        """What to wish for next; wishes that are granted or broken for good are settled."""
        if not self.engine.propagate():
            self._finish()
        wishes = np.fromiter(self.weight, np.int32, len(self.weight))
        for lit in wishes[self.engine.store.value[wishes] != 0].tolist():
            self._lower += self.weight.pop(lit) * int(self.engine.store.value[lit] < 0)
        if self.lower >= self.goal:
            self._finish()
        wishes = np.fromiter(self.weight, np.int32, len(self.weight))
        weights = np.fromiter(self.weight.values(), np.int64, len(self.weight))
        order = np.lexsort((wishes, -weights))
        self.wishes = wishes[order[: int((weights >= self.least).sum())]]

    def _lower_least(self) -> None:
        """Wish for smaller weights too."""
        rest = [w for w in self.weight.values() if w < self.least]
        self.least = max(rest) // 2 + 1 if rest else 1

    def _take(self) -> bool:
        """The labelling that was found; True when it is better than all before."""
        assert self.problem is not None and self.engine.labels is not None
        labels = np.zeros(len(self.net.cards), dtype=np.int64)
        labels[self.problem.variables] = self.engine.labels[: len(self.problem.variables)]
        if not self.offer(labels):
            return False
        self.labels = labels
        return True

    def _cost(self, labels: Labels) -> int:
        total = sum(int(self.net.unary[i][labels[i]]) for i in range(len(labels)) if i not in self.net.gone)
        return total + sum(int(table[tuple(labels[list(scope)])]) for scope, table in self.net.functions.items())

    def _harden(self) -> None:
        """A wish that no labelling below the goal can do without is a demand."""
        sure = [lit for lit, w in self.weight.items() if w >= self.goal - self.lower]
        if sure:
            for lit in sure:
                del self.weight[lit]
            self.engine.demand(np.array(sure, dtype=np.int32))
            self._wish()

    def _trim(self, core: Wishes, end: float, work: int) -> Wishes:
        """A smaller core, where asking for less finds one soon."""
        most = self.engine.work + work

        def refused(wishes: Wishes) -> bool:
            left = most - self.engine.work
            if left <= 0 or clock.now() >= end:
                return False
            found = self.engine.run(end - clock.now(), TRIM_FAILURES, wishes, left)
            return found is False and not self.engine.impossible

        for _ in range(TRIMS):
            before = len(core)
            if before == 1 or not refused(np.ascontiguousarray(core[::-1])):
                break
            core = self.engine.core
            if len(core) == before:
                break
        k = 0
        while len(core) <= SMALL and k < len(core) > 1:
            if refused(np.delete(core, k)):
                core = self.engine.core
            else:
                k += 1
        return core

    def _relax(self, core: Wishes) -> None:
        """At least one wish of a core is broken."""
        self.cores += 1
        wishes = [int(lit) for lit in core]
        least = min(self.weight[lit] for lit in wishes)
        self._lower += least
        for lit in wishes:
            self.weight[lit] -= least
            if self.weight[lit] == 0:
                del self.weight[lit]
        broken = [lit ^ 1 for lit in wishes]
        self._demand_one(broken)
        later = broken[-1]  # true when one of the later wishes is broken
        for k in range(len(broken) - 2, -1, -1):
            room = len(self.engine.rules.offset) - 1
            if self.next + 2 > room:
                if room > MOST:
                    self.closed = True
                    return
                self.engine.enlarge(room)
            both = self._fresh()
            self._demand_one([broken[k] ^ 1, later ^ 1, both])
            self.weight[both ^ 1] = least
            if k > 0:
                either = self._fresh()
                self._demand_one([broken[k] ^ 1, either])
                self._demand_one([later ^ 1, either])
                later = either
        self._harden()
        self._wish()

    def _fresh(self) -> int:
        """The literal that says that a new Boolean is true; it is false unless it has to be true."""
        i = self.next
        self.next += 1
        push(self.engine.store, i)
        self.engine.store.phase[i] = self.engine.rules.offset[i]
        return int(self.engine.rules.literal[self.engine.rules.offset[i] + 1])

    def _demand_one(self, literals: list[int]) -> None:
        self.engine.add_clause(np.array(literals, dtype=np.int32))
