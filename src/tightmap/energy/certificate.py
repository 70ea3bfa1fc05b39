"""What may be claimed: lower bounds with their own rounding error, and when a bound proves a labelling optimal.

A bound is a sum of minima, evaluated in float64.  Write L for its exact value, which no energy is below, and raw for
the computed one: |raw - L| <= error, where the error follows from the sizes of everything that was added (each addition
of numbers a, b is off by at most u |a + b|, u = 2^-53; the derivations stand where the sums are made).  The bound that
is used is

    bound = raw - error <= L <= min E,

rounded up to the next possible energy where all costs are multiples of a quantum.

The energy of a labelling x is a sum too: |E_computed(x) - E(x)| <= N u S(x), with N terms of total size S(x).  A
labelling is called optimal when energy and bound differ by no more than these two errors can explain,

    E_computed(x) - bound <= 2 error + N u S(x).

For sums of messages the error is that of the worst case, in which all roundings go the same way; they do not, and a
method that stops as soon as it may claim something would always stop with a gap of all that is allowed.  There only a
part of the second error counts, E_computed(x) - raw <= error / WORST + N u S(x); errors that are no worst case, as the
grain in which a search counts, count in full.  So nothing that could be seen in float64 is left open.  All terms scale
with the costs and none is absolute, so the
claim does not change when all costs are multiplied by a number, nor when a constant is added (constants are kept
apart).  Messages of a method may be far larger than the costs they stand for; then the error proves nothing, so both
tolerances are also limited to a billionth of what was really added: the size of the terms of x and of the smallest
entries of all tables.  (Where both of these are zero, x takes the minimum of every table and is optimal.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Graph

UNIT = 2.0**-53
WORST = 16.0  # the error of a sum of messages is at least so many times what rounding really does to it
SHARE = 0.5 * (1.0 + 1.0 / WORST)  # of such an error, twice of which may separate energy and bound
RELATIVE = 1e-9  # of the size of what was added: the largest difference that may ever pass for rounding


class Certified(float):
    """A lower bound that knows by how much rounding may have lowered it: a float like any other otherwise."""

    __slots__ = ("error",)
    error: float

    def __new__(cls, value: float, error: float = 0.0) -> Certified:
        self = super().__new__(cls, value)
        self.error = error
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Certified, (float(self), self.error)


def certify(graph: Graph, raw: float, error: float, worst: bool = True) -> Certified:
    """Subtract what rounding may have added, then round up to the next possible energy where there is a quantum.

    ``worst``: the error is that of the worst case, as for sums of messages.
    """
    allowance = error + graph.slack + UNIT * 4.0 * (abs(raw) + abs(graph.constant))
    bound = raw - allowance
    if graph.quantum > 0.0 and math.isfinite(bound):
        steps = (bound - graph.constant) / graph.quantum
        # a bound this close above a multiple may be there by rounding alone
        steps = math.ceil(steps - 1e-9 - 1e-13 * abs(steps))
        rounded = graph.constant + steps * graph.quantum
        if rounded >= bound:
            return Certified(rounded, UNIT * 4.0 * abs(rounded))
    return Certified(bound, SHARE * allowance if worst else allowance)


class Proof:
    """Whether a bound meets the energy of a labelling; sizes are computed when they are first needed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._labels: npt.NDArray[np.integer] | None = None
        self._size = 0.0  # of the terms of the labelling
        self._minima: float | None = None  # of the smallest entries of all tables

    def learn(self, labels: npt.NDArray[np.integer], size: float) -> None:
        """The size of the terms of a labelling, from whoever has computed it."""
        self._labels, self._size = labels, size

    def holds(self, labels: npt.NDArray[np.integer], energy: float, bound: float) -> bool:
        """``energy`` is the canonical one of ``labels``, ``bound`` a certified one."""
        gap = energy - bound
        if gap <= 0.0:
            return True
        if not math.isfinite(gap):
            return False
        from tightmap.energy.energies import labelling_size, minima_size

        graph = self.graph
        error = 2.0 * getattr(bound, "error", 0.0)
        if self._labels is not labels:
            self.learn(labels, labelling_size(graph, labels))
        terms = UNIT * (graph.n + graph.m + 4) * self._size + 2.0 * graph.slack
        if gap > error + terms:
            return False
        limit = RELATIVE * self._size
        if gap <= min(error, limit) + min(terms, limit):
            return True  # more so with the sizes of the minima, which take a pass over all tables
        if self._minima is None:
            self._minima = minima_size(graph)
        if self._size + self._minima == 0.0:
            # the labelling takes the least cost of every table, and all of these are zero, unless costs are missing
            return graph.power == 0 or graph.slack == 0.0
        limit = RELATIVE * (self._size + self._minima)
        return gap <= min(error, limit) + min(terms, limit)


def proves_infeasible(graph: Graph, bound: float) -> bool:
    """A certified bound above every energy that a feasible labelling can have."""
    return graph.hard > 0.0 and bound > graph.hard_threshold and not np.isnan(bound)
