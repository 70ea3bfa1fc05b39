"""QPBO: roof duality for quadratic functions of binary variables (Boros and Hammer 2002).

    f(b) = constant + sum_i a_i b_i + sum_ij q_ij b_i b_j

Every variable gets two nodes, one for b_i and one for its complement; after writing every term as a positive multiple
of a product of two literals u v, such a term becomes the arcs u -> not v and v -> not u.  The maximum flow is the roof
dual bound.  A variable whose two nodes fall on different sides of the smallest source side is labelled, and the
labels are persistent: overwriting any b with them never raises f (autarky).  All is labelled, up to ties, when f is
submodular or becomes so by complementing variables.

Coefficients are rounded to integers times a power of two, so that the flow is exact; ``error`` bounds the effect.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from tightmap.graphcut.flow import Flow, MaxFlow
from tightmap.graphcut.network import Grid
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import EVER

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]

BITS = 40  # largest coefficient after rounding; the other bits of int64 are for sums
ROOM = 60  # bits for the sum of all coefficients, twice where two nodes stand for a variable
UNKNOWN = -1
MOST_STEPS = 13  # distances between the ends of pairs on a grid: as many as 26 neighbours have
GRID_FILL = 0.5  # part of the arcs of such a grid that must be there


@compiled
def _merge(n, first, second, weight, out_first, out_second, out_weight):
    """Add up terms on the same pair (smaller index first); returns how many pairs are left."""
    start = np.zeros(n + 1, np.int64)
    for e in range(len(first)):
        start[min(first[e], second[e]) + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    order = np.empty(len(first), np.int64)
    fill = start[:-1].copy()
    for e in range(len(first)):
        i = min(first[e], second[e])
        order[fill[i]] = e
        fill[i] += 1
    slot = np.full(n, -1, np.int64)
    count = 0
    for i in range(n):
        begin = count
        for t in range(start[i], start[i + 1]):
            e = order[t]
            j = max(first[e], second[e])
            if slot[j] < begin:
                slot[j] = count
                out_first[count] = i
                out_second[count] = j
                out_weight[count] = 0
                count += 1
            out_weight[slot[j]] += weight[e]
    return count


class _BooleanFunction(ABC):
    """constant + sum_i linear_i b_i + sum_e weight_e b_first(e) b_second(e), in whole multiples of 1 / scale."""

    flow: Flow
    negative_sum: int  # what the function is where every negative term is taken

    def __init__(
        self, linear: Floats, first: Integers, second: Integers, weight: Floats, constant: float = 0.0
    ) -> None:
        self.n = len(linear)
        self.constant = constant
        self.bound = -np.inf
        self.scale, self.error = _unit(linear, weight)
        self._build(linear, first, second, weight)

    @abstractmethod
    def _build(self, linear: Floats, first: Integers, second: Integers, weight: Floats) -> None:
        """Make the flow network."""

    @abstractmethod
    def solve(self, left: float = EVER) -> npt.NDArray[np.int8]:
        """Labels by a minimum cut; sets ``bound``.  TimeUp when that takes more than ``left`` seconds."""

    def _whole(self, coefficients: Floats) -> npt.NDArray[np.int64]:
        return np.rint(coefficients * self.scale).astype(np.int64)


class QPBO(_BooleanFunction):
    """Roof duality of one function; ``solve`` first, then ``labels``, ``bound`` and ``improve``."""

    def _build(self, linear: Floats, first: Integers, second: Integers, weight: Floats) -> None:
        n = self.n
        a, q = self._whole(linear), self._whole(weight)
        i, j, b = np.empty(len(q), np.int32), np.empty(len(q), np.int32), np.empty(len(q), np.int64)
        count = _merge(n, first, second, q, i, j, b)
        i, j, b = i[:count], j[:count], b[:count]
        del q
        negative = b < 0
        np.add.at(a, j[negative], b[negative])  # b x_i x_j = b x_j + |b| (1 - x_i) x_j
        u = 2 * i + negative  # the literal of i in the term, and its complement
        tails = np.concatenate([u, 2 * j])
        heads = np.concatenate([2 * j + 1, u ^ 1])
        size = np.abs(b)
        del i, j, b, u, negative
        source, sink = np.zeros(2 * n, np.int64), np.zeros(2 * n, np.int64)
        source[0::2], sink[0::2] = np.maximum(-a, 0), np.maximum(a, 0)
        source[1::2], sink[1::2] = np.maximum(a, 0), np.maximum(-a, 0)
        self.negative_sum = int(np.minimum(a, 0).sum())
        self.force = int(2 * (np.abs(a).sum() + size.sum()) + 1)
        self.flow = MaxFlow(2 * n, tails, heads, np.concatenate([size, size]), source=source, sink=sink)

    def solve(self, left: float = EVER) -> npt.NDArray[np.int8]:
        """Persistent labels (0, 1, or UNKNOWN); ``bound`` is the roof dual bound of the function as it was given."""
        value = self.flow.solve(left)
        # negative_sum and value are exact integers; the flow counts every term twice
        self.bound = self.constant + (self.negative_sum + value / 2) / self.scale - self.error
        return self.labels()

    def labels(self) -> npt.NDArray[np.int8]:
        side = self.flow.source_side()
        yes, no = side[0::2], side[1::2]
        out = np.full(self.n, UNKNOWN, np.int8)
        out[yes & ~no] = 1
        out[no & ~yes] = 0
        return out

    def fix(self, i: int, b: int) -> None:
        """Force a variable; the bound after another ``solve`` would be that of the restricted function."""
        nodes = np.array([2 * i + 1 - b, 2 * i + b])  # the literal that becomes true, then its complement
        self.flow.add_terminals(nodes, np.array([self.force, 0]), np.array([0, self.force]))

    def improve(
        self, b: npt.NDArray[np.int8], candidates: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int8]:
        """A labelling no worse than b: fix one unlabelled variable after the other at b's value and follow the labels.

        Fixing a variable at its current value keeps b feasible, and what is then labelled is persistent for the
        restricted function; so f never rises.  Flow and trees are reused.  The object is used up afterwards.
        """
        b = b.copy()
        known = self.labels()
        b[known >= 0] = known[known >= 0]
        for i in rng.permutation(candidates):
            if known[i] >= 0:
                continue
            self.fix(int(i), int(b[i]))
            self.flow.solve()
            known = self.labels()
            b[known >= 0] = known[known >= 0]
            known[i] = b[i]
        return b


@compiled
def _steps(first, second, out):
    """Distinct distances second - first of the pairs, in ``out``; how many, -1 when there are more than fit."""
    count = 0
    for e in range(len(first)):
        step = abs(np.int64(second[e]) - np.int64(first[e]))
        k = 0
        while k < count and out[k] != step:
            k += 1
        if k == count:
            if count == len(out):
                return -1
            out[count] = step
            count += 1
    return count


@compiled
def _fill(first, second, weight, scale, steps, margin, degree, cap, term):
    """Arcs of the products, and what they add to the terminals; see ``SubmodularCut``."""
    for e in range(len(first)):
        i, j = np.int64(first[e]), np.int64(second[e])
        q = -np.int64(np.rint(weight[e] * scale))
        half = q >> 1
        term[margin + i] += half
        term[margin + j] += q - half
        step = j - i
        k = 0
        while steps[k] != step and steps[k] != -step:
            k += 1
        slot = 2 * k + (steps[k] != step)
        cap[(margin + i) * degree + slot] += half
        cap[(margin + j) * degree + (slot ^ 1)] += q - half


class SubmodularCut(_BooleanFunction):
    """The minimum of a function none of whose products has a positive weight, by one cut on n nodes.

        q b_i b_j = |q| / 2 (b_i (1 - b_j) + (1 - b_i) b_j - b_i - b_j)   for q < 0: arcs between i and j, both ways;
        b is 1 on the side of the source

    Where the pairs have few distinct distances, as on grids of any dimension, the network needs no list of arcs.
    """

    def _build(self, linear: Floats, first: Integers, second: Integers, weight: Floats) -> None:
        n = self.n
        steps = np.zeros(MOST_STEPS, np.int64)
        count = _steps(first, second, steps)
        steps = steps[: max(count, 0)]
        self.margin = int(steps.max(initial=0)) if count > 0 and len(first) > GRID_FILL * n * count else 0
        if self.margin == 0:
            a, q = self._whole(linear), -self._whole(weight)
            half = q >> 1
            np.subtract.at(a, first, half)
            np.subtract.at(a, second, q - half)
            self.flow = MaxFlow(n, first, second, half, q - half, np.maximum(-a, 0), np.maximum(a, 0))
        else:
            degree, total = 2 * count, n + 2 * self.margin
            cap, term = np.zeros(total * degree, np.int64), np.zeros(total, np.int64)
            term[self.margin : self.margin + n] = np.rint(linear * -self.scale)
            _fill(first, second, weight, self.scale, steps, self.margin, degree, cap, term)
            pairs = np.stack((steps, -steps), axis=1).reshape(-1)
            self.flow = Flow(Grid(pairs, degree), cap, term, 0, np.int64(0))
        self.negative_sum = -int(np.maximum(self.flow.term, 0).sum())

    def solve(self, left: float = EVER) -> npt.NDArray[np.int8]:
        """The minimiser with the fewest ones; ``bound`` is the minimum less the error of rounding."""
        value = self.flow.solve(left)
        self.bound = self.constant + (self.negative_sum + value) / self.scale - self.error
        side = self.flow.source_side()
        return side[self.margin : self.margin + self.n].astype(np.int8)


def _unit(linear: Floats, weight: Floats) -> tuple[float, float]:
    """``unit`` of these coefficients."""
    largest = float(max(np.abs(linear).max(initial=0.0), np.abs(weight).max(initial=0.0)))
    whole = bool((linear == np.rint(linear)).all() and (weight == np.rint(weight)).all())
    return unit(largest, whole, len(linear), len(weight))


def unit(
    largest: float, whole: bool, variables: int, pairs: int, step: float = 1.0, room: int = ROOM
) -> tuple[float, float]:
    """The factor that makes coefficients whole, and how much rounding can change a value of the function.

    largest  of the sizes of all coefficients
    whole    whether all are multiples of 1 / step
    room     bits that the sum of all of them may take
    """
    count = variables + pairs
    bits = min(BITS, room - count.bit_length())
    if largest == 0.0 or (whole and largest * step < 2.0**bits):
        return step, 0.0
    scale = 2.0 ** min(bits - int(np.ceil(np.log2(largest))), 1000)  # subnormal numbers become zero
    return scale, count * 0.5 / scale


def best_choice(linear: Floats, first: Integers, second: Integers, weight: Floats) -> npt.NDArray[np.int8]:
    """The minimiser with the fewest ones where no product has a positive weight, else persistent labels."""
    submodular = not (weight > 0.0).any()
    return (SubmodularCut if submodular else QPBO)(linear, first, second, weight).solve()
