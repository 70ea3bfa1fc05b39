"""Lower bounds from contradictions: which functions cannot all be free of cost?

With costs as Booleans (levels.py), wish that as many as possible are false and ask the constraint engine.  Either there
is such a labelling, or it names wishes b_1, ..., b_n that contradict each other, a core.  At least one of them has to be
given up, which costs at least the smallest weight w among them.  So c0 rises by w, the weights of all of them fall by w,
and what it would cost to give up more than one is put into new wishes (Narodytska and Bacchus 2014):

    sum_i w [b_i is broken] = w + sum_i w [b_i is broken and one of b_{i+1}, ..., b_n is]        where one is broken.

The sum of all weights that are broken, plus c0, stays what a labelling costs, so c0 is a lower bound at any time, and a
labelling that grants all wishes is optimal.  Large weights are wished for first, which gives labellings on the way; a
wish whose weight closes the gap to the best labelling becomes a constraint.
"""

from __future__ import annotations

import copy

import numpy as np

from tightmap.energy.certificate import Certified
from tightmap.moves.context import Labels
from tightmap.moves.feasibility.engine import Engine
from tightmap.moves.feasibility.store import WAITING, push
from tightmap.runtime import clock
from tightmap.solvers.exact.levels import levels
from tightmap.solvers.exact.network import Network

SPARE = 20_000  # Booleans for new wishes
TRIMS = 4  # most attempts to make a core smaller by asking again
TRIM_FAILURES = 100  # of each of them
SMALL = 40  # wishes of a core that are left out one by one


class Cores:
    """The search by cores of one network.  Costs are in its units, without its constant."""

    def __init__(self, net: Network) -> None:
        self.net = copy.copy(net)  # elimination changes the constant of the other
        self.problem = levels(net, SPARE)
        self.closed = self.problem is None  # nothing more to do
        self.proven = False  # no labelling costs less than ``lower``, and one costs that much or none is of interest
        self.lower = 0
        self.upper = net.upper  # only labellings below this are of interest
        self.labels: Labels | None = None
        self.cores = 0
        if self.problem is None:
            return
        p = self.problem
        self.lower = p.floor
        cost = np.zeros(int(p.offset[-1]))
        np.add.at(cost, p.labels, np.array(p.weights, dtype=np.float64))
        self.engine = Engine(p.offset, cost, p.given)
        s = self.engine.store
        s.number[WAITING] = p.used
        s.where[p.used :] = -1
        self.next = p.used  # the next free variable
        self.weight: dict[int, int] = {}  # literal that shall be true -> weight
        for at, w in zip(p.labels.tolist(), p.weights, strict=True):
            lit = int(self.engine.rules.literal[at]) ^ 1
            self.weight[lit] = self.weight.get(lit, 0) + w
        self.least = max(self.weight.values(), default=0)
        self._lower_least()
        self._wish()

    @property
    def bound(self) -> Certified:
        return self.net.bound(self.lower)

    def offer(self, cost: int) -> None:
        """Only labellings that cost less than this are of interest from now on."""
        self.upper = min(self.upper, cost)
        self._harden()

    def prefer(self, labels: Labels) -> None:
        """Stay close to this labelling of the network."""
        if self.problem is not None:
            self.engine.prefer(labels[np.array(self.problem.variables, dtype=np.int64)])

    def step(self, seconds: float, failures: int) -> bool:
        """Search on for so many failures; True when there is a better labelling in ``labels``."""
        if self.closed:
            return False
        end = clock.now() + seconds
        found = self.engine.run(seconds, failures, self.wishes)
        if found is None:
            return False
        if found:
            better = self._take()
            if self._lower_least():
                self._wish()
            else:
                self.closed = self.proven = True
            return better
        if self.engine.impossible:
            self.lower = max(self.lower, self.upper)
            self.closed = self.proven = True
            return False
        self._relax(self._trim(self.engine.core, end))
        return False

    def _wish(self) -> None:
        chosen = [(w, lit) for lit, w in self.weight.items() if w >= max(self.least, 1)]
        self.wishes = np.array([lit for _, lit in sorted(chosen, reverse=True)], dtype=np.int32)

    def _lower_least(self) -> bool:
        """Wish for smaller weights too; False when all were wished for."""
        rest = [w for w in self.weight.values() if 0 < w < self.least]
        self.least = max(rest) // 2 + 1 if rest else 1
        return bool(rest)

    def _take(self) -> bool:
        """The labelling that was found; True when it is better than all before."""
        assert self.problem is not None and self.engine.labels is not None
        labels = np.zeros(len(self.net.cards), dtype=np.int64)
        labels[self.problem.variables] = self.engine.labels[: len(self.problem.variables)]
        cost = self._cost(labels)
        if cost >= self.upper:
            return False
        self.labels = labels
        self.offer(cost)
        return True

    def _cost(self, labels: Labels) -> int:
        total = sum(int(self.net.unary[i][labels[i]]) for i in range(len(labels)) if i not in self.net.gone)
        return total + sum(int(table[tuple(labels[list(scope)])]) for scope, table in self.net.functions.items())

    def _harden(self) -> None:
        """A wish that no better labelling can do without is a demand."""
        if self.closed:
            return
        room = self.upper - self.net.grain - self.lower
        sure = [lit for lit, w in self.weight.items() if w > room]
        if sure:
            for lit in sure:
                del self.weight[lit]
            self.engine.demand(np.array(sure, dtype=np.int32))
            self._wish()

    def _trim(self, core: np.ndarray, end: float) -> np.ndarray:
        """A smaller core, where asking for this one alone finds one soon."""
        for _ in range(TRIMS):
            if len(core) == 1 or clock.now() >= end:
                return core
            again = np.ascontiguousarray(core[::-1])
            if self.engine.run(end - clock.now(), TRIM_FAILURES, again) is not False or self.engine.impossible:
                return core
            if len(self.engine.core) >= len(core):
                break
            core = self.engine.core
        k = 0
        while len(core) <= SMALL and k < len(core) > 1 and clock.now() < end:
            without = np.delete(core, k)
            if self.engine.run(end - clock.now(), TRIM_FAILURES, without) is False and not self.engine.impossible:
                core = self.engine.core
            else:
                k += 1
        return core

    def _relax(self, core: np.ndarray) -> None:
        """At least one wish of a core is broken."""
        self.cores += 1
        wishes = [int(lit) for lit in core]
        least = min(self.weight[lit] for lit in wishes)
        self.lower += least
        for lit in wishes:
            self.weight[lit] -= least
            if self.weight[lit] == 0:
                del self.weight[lit]
        broken = [lit ^ 1 for lit in wishes]
        self._demand_one(broken)
        later = broken[-1]  # true when one of the later wishes is broken
        for k in range(len(broken) - 2, -1, -1):
            if self.next + 2 > len(self.engine.rules.offset) - 1:
                self.closed = True  # no room for more
                return
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
