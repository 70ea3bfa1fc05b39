"""One node of the tree: some spins fixed, the others relaxed, with triangle inequalities that come and go.

Fixing a spin is merging it with the reference spin: row and column of the fixed ones are added to those of the
reference with their signs, and what they have among themselves becomes a constant.  The form of a node is then again
one of fewer spins, whose reference is spin 0 here:

    1/2 s^T A s = fixed + 1/2 r^T B r,    r = (reference, free spins),   B_0j = sum over the fixed i of s_i A_ij.

A sum of k entries is off by at most (k - 1) u times the sum of their sizes; for all entries of B and the constant
together that is less than 2 N u sum |A|.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import time_left
from tightmap.solvers.sdp.dual import certified_shift
from tightmap.solvers.sdp.mixing import mix_dense, mix_with_triangles, products
from tightmap.solvers.sdp.triangles import Triangles

SIGMA = 0.1  # of the augmented Lagrangian, in units of an ordinary entry of the matrix
DAMPING = 0.4
INNER, OUTER = 20, 5  # sweeps between two updates of the multipliers; updates in a round
SETTLE = 100  # plain sweeps with the multipliers at rest before a bound is certified
NEW = 6  # new inequalities of a round, for each spin
WORTH = 0.02  # violation that an inequality must have to be added
IDLE = 1e-6  # multipliers below this are dropped, in units of a row norm

Spin = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Whole:
    """The form of all spins, dense, with the reference first."""

    matrix: FloatArray
    error: float  # of merging rows, for any choice of fixed spins
    sigma: float  # of the augmented Lagrangian

    @staticmethod
    def of(matrix: FloatArray) -> Whole:
        size = np.abs(matrix)
        ordinary = float(np.median(size[size > 0.0])) if size.any() else 1.0
        return Whole(matrix, 2.02 * UNIT * len(matrix) * float(size.sum()), SIGMA * ordinary)


@dataclass(eq=False)
class Node:
    """A subproblem: which spins are fixed and to what, and where its relaxation is."""

    spins: Spin  # (N,) 0 where free; the reference is 1
    vectors: FloatArray  # of the reference and the free spins
    triangles: Triangles  # on these
    bound: float = -math.inf  # certified, of the whole form; at first its parent's
    error: float = 0.0

    @property
    def free(self) -> IntArray:
        return np.flatnonzero(self.spins == 0)


class Relaxation:
    """A node at work: its own matrix and the gram matrix of its vectors."""

    def __init__(self, whole: Whole, node: Node) -> None:
        self.node, self.whole = node, whole
        a, s = whole.matrix, node.spins.astype(np.float64)
        free = node.free
        row = a @ s
        self.fixed = 0.5 * float(s @ row)
        n = len(free) + 1
        self.matrix = np.zeros((n, n))
        self.matrix[1:, 1:] = a[np.ix_(free, free)]
        self.matrix[0, 1:] = self.matrix[1:, 0] = row[free]
        self.vectors = np.ascontiguousarray(node.vectors)
        self.triangles = node.triangles
        self.gram = np.empty((n, n))
        products(self.vectors, self.gram)
        self.best = self.triangles
        self.violated = 0
        self.rounds = 0

    def certify(self, context: Context) -> None:
        """The bound of the present multipliers; kept, with them, when it is the best of this node."""
        n, k = self.vectors.shape
        matrix = self.triangles.apply(self.matrix, self.triangles.gamma)
        roundings = self.triangles.roundings(self.matrix)
        norms = np.zeros(n)
        vectors = self.vectors.copy()  # those at rest have run ahead of the multipliers: it goes on from its own
        mix_dense(matrix, vectors, np.empty(k), norms, SETTLE)
        shift = certified_shift(matrix, norms, roundings, context)
        gamma = math.fsum(self.triangles.gamma.tolist())
        bound = self.fixed + shift.bound - gamma
        error = shift.error + self.whole.error + 4.0 * UNIT * (abs(self.fixed) + abs(shift.bound) + gamma)
        if bound - error > self.node.bound - self.node.error:
            self.node.bound, self.node.error = bound, error
            self.best = self.triangles

    def improve(self, context: Context) -> int:
        """A round: the most violated inequalities join, vectors and multipliers move on; returns how many joined."""
        n, k = self.vectors.shape
        t = self.triangles
        t = t.kept((t.gamma > IDLE) | (t.slack(self.gram) < 0.0))
        t, joined = t.with_violated(self.gram, NEW * n, WORTH)
        self.violated = joined
        start, listed = t.incidence(n)
        gamma, signs = t.gamma.copy(), t.signs
        rho, g, sigma = np.zeros(n), np.empty(k), self.whole.sigma
        for _ in range(OUTER):
            weight = np.maximum(0.0, gamma - sigma * t.slack(self.gram))
            matrix = t.apply(self.matrix, weight)
            mix_with_triangles(
                matrix, self.vectors, self.gram, g, rho, t.members, signs, gamma, weight, start, listed,
                sigma, DAMPING, INNER, time_left(context),
            )  # fmt: skip
            gamma = weight
        self.triangles = t.with_gamma(gamma)
        self.rounds += 1
        return joined

    def children(self) -> list[Node]:
        """Two nodes that differ in the spin that the relaxation knows least about."""
        free = self.node.free
        unsure = int(np.argmin(np.abs(self.gram[0, 1:])))
        out = []
        for value in (1, -1):
            spins = self.node.spins.copy()
            spins[free[unsure]] = value
            vectors = np.delete(self.vectors, unsure + 1, axis=0)
            triangles = self.best.merged(unsure + 1, value, len(free) + 1)
            out.append(Node(spins, vectors, triangles, self.node.bound, self.node.error))
        return out


@compiled
def _enumerate(matrix, best):
    """The least value of 1/2 r^T B r with r_0 = 1, by trying all; best becomes the spins that attain it."""
    n = len(matrix)
    spins = np.ones(n)
    least = np.inf
    for code in range(1 << (n - 1)):
        for i in range(1, n):
            spins[i] = 1.0 if code >> (i - 1) & 1 else -1.0
        value = 0.0
        for i in range(n):
            row = 0.0
            for j in range(i):
                row += matrix[i, j] * spins[j]
            value += row * spins[i]
        if value < least:
            least = value
            for i in range(n):  # of whole arrays it would take seconds to compile
                best[i] = spins[i]
    return least


def enumerate_all(relaxation: Relaxation) -> Spin:
    """Solve a small node by trying all spins; its bound becomes exact, and the best spins of the whole are returned."""
    node, matrix = relaxation.node, relaxation.matrix
    best = np.ones(len(matrix))
    least = float(_enumerate(matrix, best))
    size = 0.5 * float(np.abs(matrix).sum())
    bound = relaxation.fixed + least
    error = (
        UNIT * (1.01 * 2.0 * len(matrix) * size + 4.0 * (abs(relaxation.fixed) + abs(least))) + relaxation.whole.error
    )
    if bound - error > node.bound - node.error:
        node.bound, node.error = bound, error
    spins = node.spins.copy()
    spins[node.free] = best[1:].astype(np.int8)
    return spins
