"""QPBO: roof duality for quadratic functions of binary variables (Boros and Hammer 2002).

    f(b) = constant + sum_i a_i b_i + sum_ij q_ij b_i b_j

Every variable gets two nodes, one for b_i and one for its complement; after writing every term as a positive multiple
of a product of two literals u v, such a term becomes the arcs u -> not v and v -> not u.  The maximum flow is the roof
dual bound.  A variable whose two nodes fall on different sides of the smallest source side is labelled, and the
labels are persistent: overwriting any b with them never raises f (autarky).  All is labelled, up to ties, when f is
submodular or becomes so by complementing variables.

Coefficients are rounded to integers times a power of two, so that the flow is exact; ``error`` bounds the effect.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.graphcut.flow import MaxFlow
from tightmap.runtime.compiled import compiled

BITS = 40  # largest coefficient after rounding; the other bits of int64 are for sums
UNKNOWN = -1


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


class QPBO:
    """Roof duality of one function; ``solve`` first, then ``labels``, ``bound`` and ``improve``."""

    def __init__(
        self,
        linear: npt.NDArray[np.float64],
        first: npt.NDArray[np.integer],
        second: npt.NDArray[np.integer],
        weight: npt.NDArray[np.float64],
        constant: float = 0.0,
    ) -> None:
        n = len(linear)
        largest = max(np.abs(linear).max(initial=0.0), np.abs(weight).max(initial=0.0))
        integral = largest < 2.0**BITS and (linear == np.rint(linear)).all() and (weight == np.rint(weight)).all()
        shift = 0 if integral or largest == 0.0 else BITS - int(np.ceil(np.log2(largest)))
        self.scale = 2.0**shift
        a = np.rint(linear * self.scale).astype(np.int64)
        q = np.rint(weight * self.scale).astype(np.int64)
        self.error = 0.0 if integral else (n + len(weight)) * 0.5 / self.scale
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
        self.n = n
        self.constant = constant
        self.negative_sum = int(np.minimum(a, 0).sum())
        self.force = int(2 * (np.abs(a).sum() + size.sum()) + 1)
        self.flow = MaxFlow(2 * n, tails, heads, np.concatenate([size, size]), source=source, sink=sink)
        self.bound = -np.inf

    def solve(self) -> npt.NDArray[np.int8]:
        """Persistent labels (0, 1, or UNKNOWN); ``bound`` is the roof dual bound of the function as it was given."""
        value = self.flow.solve()
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


def best_choice(
    linear: npt.NDArray[np.float64],
    first: npt.NDArray[np.integer],
    second: npt.NDArray[np.integer],
    weight: npt.NDArray[np.float64],
) -> npt.NDArray[np.int8]:
    """Minimiser of the function where no product has a positive weight (one cut, fewest ones), else persistent labels.

    q b_i b_j = q b_j + |q| (1 - b_i) b_j for q < 0: an arc from j to i on a network of half the size.
    """
    if (weight > 0.0).any():
        return QPBO(linear, first, second, weight).solve()
    largest = max(np.abs(linear).max(initial=0.0), np.abs(weight).max(initial=0.0), 1e-300)
    scale = 2.0 ** (BITS - int(np.ceil(np.log2(largest))))
    a = np.rint(linear * scale).astype(np.int64)
    q = np.rint(weight * scale).astype(np.int64)
    np.add.at(a, second, q)
    flow = MaxFlow(len(a), second, first, -q, None, np.maximum(-a, 0), np.maximum(a, 0))
    flow.solve()
    return flow.source_side().astype(np.int8)
