"""Potts: weight * [a != b] on pairs, also between variables with different numbers of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tightmap.factors.block import Block, label_grid
from tightmap.graph.graph import FloatArray, IntArray, Kind
from tightmap.runtime.compiled import lean


@dataclass(frozen=True, eq=False)
class PottsBlock(Block):
    kind: ClassVar[Kind] = Kind.POTTS

    def evaluate(self, labels: npt.NDArray[np.integer]) -> FloatArray:
        return self.weights * (labels[self.scopes[:, 0]] != labels[self.scopes[:, 1]])

    def dense(self, rows: IntArray, shape: tuple[int, ...]) -> FloatArray:
        a, b = label_grid(shape)
        return self.weights[rows][:, None, None] * (a != b)

    @property
    def parameters(self) -> dict[str, npt.NDArray]:
        return {}


@lean
def potts_add_slice(n, w, label, out):
    for s in range(n):
        out[s] += w
    if label < n:
        out[label] -= w


@lean
def potts_contract(n, c, w, x, start, out):
    """out(s) += w (sum_t x(t) - x(s)); the vector need not be normalised."""
    total = 0.0
    for t in range(c):
        total += x[start + t]
    total *= w
    m = min(n, c)
    for s in range(m):
        out[s] += total - w * x[start + s]
    for s in range(m, n):
        out[s] += total


@lean
def potts_minmarg(n, c, w, h, start, out):
    """min(h(s), min h + w); for a negative weight the best label different from s needs the two smallest h."""
    first = np.inf
    second = np.inf
    where = -1
    for t in range(c):
        v = h[start + t]
        if v < first:
            second = first
            first = v
            where = t
        elif v < second:
            second = v
    for s in range(n):
        other = (second if s == where else first) + w
        if s < c:
            same = h[start + s]
            out[s] = same if same < other else other
        else:
            out[s] = other
