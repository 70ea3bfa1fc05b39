"""Dense tables of a small model, its multilinear energy and the gradient of that.

A relaxed point x holds one vector x_i for every variable, one after the other in a flat array: x_i(s) is
x[offset[i] + s].  Factors of equal shape are kept together, so that NumPy handles many at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.reference.tensor import Vector, contract
from tightmap.runtime.lazy import lazy

Labels = npt.NDArray[np.int64]


class Outcome(NamedTuple):
    """What every method of this room returns."""

    labels: Labels
    energy: float
    trace: list[dict[str, float]]  # one entry an iteration


class Group(NamedTuple):
    """Factors of one shape.  Factor c has the table tables[c], whose axis q belongs to the variable scopes[c, q]."""

    scopes: Labels  # (m, k)
    tables: Vector  # (m, S_1, .., S_k)
    entries: list[Labels]  # entries[q] is (m, S_q): x[entries[q]] are the vectors of the variables at position q


@dataclass(frozen=True)
class Tables:
    """A model as unaries and groups of dense tables; ``dense.tables`` makes it."""

    constant: float
    offset: Labels  # (n + 1,)
    unary: Vector  # (offset[n],)
    groups: list[Group]

    @property
    def order(self) -> int:
        """D, the size of the largest clique."""
        return max((len(g.entries) for g in self.groups), default=1)

    @property
    def rows(self) -> list[slice]:
        """x[rows[i]] is x_i."""
        return [slice(a, b) for a, b in zip(self.offset[:-1], self.offset[1:], strict=True)]

    @lazy
    def cliques(self) -> list[list[tuple[Group, int, int]]]:
        """C(i) for every variable i: the group, the number in it and the position of i, of the cliques with i."""
        out: list[list[tuple[Group, int, int]]] = [[] for _ in self.rows]
        for group in self.groups:
            for (c, q), i in np.ndenumerate(group.scopes):
                out[i].append((group, c, q))
        return out

    @property
    def scale(self) -> float:
        """The largest absolute cost: dividing by it normalises all potentials to [-1, 1] (§4.2)."""
        costs = [self.unary, *(g.tables for g in self.groups)]
        return max(float(np.abs(c).max(initial=0.0)) for c in costs) or 1.0

    def energy(self, labels: Labels) -> float:
        """e(s), (4)."""
        total = self.constant + float(self.unary[self.offset[:-1] + labels].sum())
        for scopes, tables, _ in self.groups:
            total += float(tables[(np.arange(len(scopes)), *labels[scopes].T)].sum())
        return total

    def multilinear(self, x: Vector) -> float:
        """E(x), (10): what a table leaves for its first variable, times the vector of that."""
        total = self.constant + float(self.unary @ x)
        for _, tables, entries in self.groups:
            vectors = [x[e] for e in entries]
            total += float((contract(tables, 0, vectors) * vectors[0]).sum())
        return total

    def partial(self, x: Vector, i: int) -> Vector:
        """c_i, the derivative of E with respect to x_i, (14)."""
        out = self.unary[self.offset[i] : self.offset[i + 1]].copy()
        for group, c, q in self.cliques[i]:
            out += contract(group.tables[c], q, [x[e[c]] for e in group.entries])
        return out

    def gradient(self, x: Vector) -> Vector:
        """The gradient of E: all c_i."""
        out = self.unary.copy()
        for _, tables, entries in self.groups:
            vectors = [x[e] for e in entries]
            for q, mine in enumerate(entries):
                np.add.at(out, mine, contract(tables, q, vectors))
        return out

    def argmin(self, costs: Vector) -> Labels:
        """The cheapest label of every variable, the first one where several are: Lemma 1."""
        return np.array([np.argmin(costs[r]) for r in self.rows], dtype=np.int64)

    def one_hot(self, labels: Labels) -> Vector:
        """The vertex of a labelling: x_i(s) = 1 where i has the label s."""
        x = np.zeros(len(self.unary))
        x[self.offset[:-1] + labels] = 1.0
        return x
