"""A binary pairwise model as a quadratic form of spins, with a bound on what rounding did to it.

Label 0 is the spin -1, label 1 the spin +1.  A table with the entries e00, e01, e10, e11 is

    c + h_i s_i + h_j s_j + J s_i s_j,   4 c = e00 + e01 + e10 + e11,   4 J = e00 - e01 - e10 + e11,
    4 h_i = -e00 - e01 + e10 + e11,      4 h_j = -e00 + e01 - e10 + e11,

and a unary (u0, u1) is (u0 + u1) / 2 + (u1 - u0) / 2 s_i.  One spin more, s_0 = 1, carries the linear terms (none is
added where all of these are zero: then s and -s cost the same).  With N spins in all,

    E = constant + 2^power * 1/2 s^T A s,     A symmetric with zero diagonal, |error| <= ``error`` for every s.

A is counted in units of 2^power so that an ordinary row of it has a norm near 1; a power of two is exact.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from tightmap.energy.certificate import UNIT
from tightmap.factors.kernels import value
from tightmap.graph.graph import FloatArray, Graph, Kind
from tightmap.moves.context import Labels
from tightmap.runtime.compiled import lean

DENSE, POTTS = int(Kind.DENSE), int(Kind.POTTS)
LARGEST = 400  # the largest entry of A is below 2^400


@lean
def _split(g, labels, constant, coupling, field, size):
    """The four parts of every pair; ``size`` adds up, for each variable, the absolute values of all its terms."""
    for i in range(len(g.cards)):
        a = g.unary[g.offset[i]]
        b = g.unary[g.offset[i] + 1]
        field[i] = 0.5 * (b - a)
        size[i] = abs(a) + abs(b)
    for f in range(len(g.kind)):
        i = g.scope[2 * f]
        j = g.scope[2 * f + 1]
        if g.kind[f] == POTTS:
            e00 = e11 = 0.0
            e01 = e10 = g.weight[f]
        elif g.kind[f] == DENSE:
            p = g.param[f]
            w = g.weight[f]
            e00, e01, e10, e11 = w * g.params[p], w * g.params[p + 1], w * g.params[p + 2], w * g.params[p + 3]
        else:
            labels[i] = labels[j] = 0
            e00 = value(g, f, labels)
            labels[j] = 1
            e01 = value(g, f, labels)
            labels[i] = 1
            e11 = value(g, f, labels)
            labels[j] = 0
            e10 = value(g, f, labels)
        constant[f] = 0.25 * ((e00 + e11) + (e01 + e10))
        coupling[f] = 0.25 * ((e00 + e11) - (e01 + e10))
        field[i] += 0.25 * ((e11 - e00) + (e10 - e01))
        field[j] += 0.25 * ((e11 - e00) - (e10 - e01))
        both = abs(e00) + abs(e01) + abs(e10) + abs(e11)
        size[i] += both
        size[j] += both


@dataclass(frozen=True, eq=False)
class Spins:
    """The form above; variable i of the graph is spin i, the extra spin, if there is one, comes last."""

    matrix: csr_array  # A, float64, indices sorted
    constant: float
    power: int
    error: float
    n: int  # variables

    @property
    def count(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def extra(self) -> bool:
        """There is a spin that carries the linear terms."""
        return self.count > self.n

    def labels(self, spins: npt.NDArray[Any]) -> Labels:
        """Labels of the variables."""
        own = spins[: self.n]
        if self.extra:
            own = own * spins[-1]
        return (own > 0).astype(np.int64)

    def of(self, labels: npt.NDArray[np.integer]) -> npt.NDArray[np.int8]:
        """Spins of a labelling."""
        spins = np.ones(self.count, np.int8)
        spins[: self.n] = 2 * labels.astype(np.int8) - 1
        return spins

    def bound(self, form: float) -> float:
        """A value of the form 1/2 s^T A s as an energy."""
        return self.constant + math.ldexp(form, self.power)


def row_norms(values: FloatArray, rows: npt.NDArray[np.integer], count: int) -> FloatArray:
    """Euclidean norms of the rows of a sparse matrix, each row counted in its own power of two.

    That rounds nothing, and squares neither overflow nor vanish where a few costs are huge beside the others.
    """
    largest = np.zeros(count)
    np.maximum.at(largest, rows, np.abs(values))
    power = np.frexp(largest)[1]
    squares = np.ldexp(values, -power[rows]) ** 2
    return np.ldexp(np.sqrt(np.bincount(rows, squares, count)), power)


def spins_of(graph: Graph) -> Spins:
    """The quadratic form of a binary pairwise graph."""
    g = graph.arrays
    n, m = graph.n, graph.m
    constants, coupling, field, size = np.zeros(m), np.zeros(m), np.zeros(n), np.zeros(n)
    _split(g, np.zeros(n, np.int64), constants, coupling, field, size)
    constant = math.fsum((graph.constant, *(0.5 * g.unary).tolist(), *constants.tolist()))
    # an entry of a table enters with at most four roundings (weight, two sums, the constant), and a field with one
    # more for each factor of its variable; duplicate pairs are added up with one more each
    degree = np.diff(g.adj_start) + 8.0
    error = UNIT * (1.01 * float((degree * size).sum()) + 2.0 * abs(constant))
    first, second = g.scope[0::2].astype(np.int64), g.scope[1::2].astype(np.int64)
    count = n
    if field.any():
        count = n + 1
        own = np.flatnonzero(field)
        first, second = np.concatenate([first, own]), np.concatenate([second, np.full(len(own), n)])
        coupling = np.concatenate([coupling, field[own]])
    rows, columns = np.concatenate([first, second]), np.concatenate([second, first])
    matrix = csr_array(coo_array((np.concatenate([coupling, coupling]), (rows, columns)), shape=(count, count)))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    rows = np.repeat(np.arange(count), np.diff(matrix.indptr))
    norms = row_norms(matrix.data, rows, count)
    norms = norms[norms > 0.0]
    power = math.frexp(float(np.median(norms)))[1] if len(norms) else 0
    # squares of the largest entry stay finite; what vanishes beside it is far below its rounding, which ``error`` has
    power = max(power, math.frexp(float(np.abs(matrix.data).max(initial=0.0)))[1] - LARGEST)
    matrix.data = np.ldexp(matrix.data, -power)
    return Spins(matrix, constant, power, error, n)
