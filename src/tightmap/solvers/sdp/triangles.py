"""Triangle inequalities: of any three spins, two are equal.

    a X_ij + b X_il + c X_jl >= -1   for signs with a b c = 1 (four patterns), where X_ij = s_i s_j

hold for all spins and cut off part of the semidefinite relaxation.  With multipliers gamma >= 0, T_t the symmetric
matrix for which 1/2 s^T T_t s is the left side of inequality t,

    1/2 s^T A s >= 1/2 s^T (A - sum_t gamma_t T_t) s - sum_t gamma_t,

so any bound of the form on the right, less the sum of the multipliers, is a bound of the one on the left.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import FloatArray, IntArray
from tightmap.runtime.compiled import compiled

PATTERNS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], np.float64)
BINS = 512
PAIRS = ((0, 1), (0, 2), (1, 2))  # members of the pairs that the three signs belong to


@compiled
def _violations(gram, least, count):
    """How many triples are violated by how much: bin b holds those from 2 b / BINS on."""
    n = len(gram)
    for i in range(n):
        for j in range(i + 1, n):
            x = gram[i, j]
            for l in range(j + 1, n):
                y = gram[i, l]
                z = gram[j, l]
                low = min(min(x + y + z, x - y - z), min(z - x - y, y - x - z))
                if low < -1.0 - least:
                    count[min(BINS - 1, int((-1.0 - low) * (BINS // 2)))] += 1


@compiled
def _collect(gram, least, members, pattern):
    """The triples that are violated by more than ``least``, with the pattern that is; returns how many."""
    n = len(gram)
    count = 0
    for i in range(n):
        for j in range(i + 1, n):
            x = gram[i, j]
            for l in range(j + 1, n):
                y = gram[i, l]
                z = gram[j, l]
                low = min(min(x + y + z, x - y - z), min(z - x - y, y - x - z))
                if low < -1.0 - least:
                    if count == len(pattern):
                        return count
                    members[count, 0] = i
                    members[count, 1] = j
                    members[count, 2] = l
                    if low == x + y + z:
                        pattern[count] = 0
                    elif low == x - y - z:
                        pattern[count] = 1
                    elif low == y - x - z:
                        pattern[count] = 2
                    else:
                        pattern[count] = 3
                    count += 1
    return count


@dataclass(frozen=True, eq=False)
class Triangles:
    """Some of the inequalities, with their multipliers; never changed, so that nodes of a tree can share them."""

    members: npt.NDArray[np.int32]  # (m, 3) ascending
    pattern: npt.NDArray[np.int8]  # (m,) row of PATTERNS
    gamma: FloatArray  # (m,) >= 0

    @staticmethod
    def none() -> Triangles:
        return Triangles(np.zeros((0, 3), np.int32), np.zeros(0, np.int8), np.zeros(0))

    def __len__(self) -> int:
        return len(self.gamma)

    @property
    def signs(self) -> FloatArray:
        return PATTERNS[self.pattern]

    def keys(self, n: int) -> IntArray:
        """A number for each inequality."""
        i, j, l = self.members.T.astype(np.int64)
        return ((i * n + j) * n + l) * 4 + self.pattern

    def incidence(self, n: int) -> tuple[IntArray, IntArray]:
        """start, listed: the inequalities of spin i are listed[start[i]:start[i + 1]]."""
        flat = self.members.ravel()
        start = np.concatenate(([0], np.cumsum(np.bincount(flat, minlength=n)))).astype(np.int64)
        return start, np.argsort(flat, kind="stable") // 3

    def slack(self, gram: FloatArray) -> FloatArray:
        total = np.ones(len(self))
        for k, (p, q) in enumerate(PAIRS):
            total += self.signs[:, k] * gram[self.members[:, p], self.members[:, q]]
        return total

    def apply(self, matrix: FloatArray, weight: FloatArray) -> FloatArray:
        """A - sum_t weight_t T_t."""
        out = matrix.copy()
        signs = self.signs
        for k, (p, q) in enumerate(PAIRS):
            i, j = self.members[:, p], self.members[:, q]
            np.add.at(out, (i, j), -weight * signs[:, k])
            np.add.at(out, (j, i), -weight * signs[:, k])
        return out

    def roundings(self, matrix: FloatArray) -> float:
        """What rounding may have done to ``apply`` with gamma, in units of 2^-53, as a bound of the spectral norm.

        An entry that c triangles share is a sum of c + 1 numbers, off by c times the sum of their sizes at most; the
        largest sum of a row bounds the norm of a symmetric matrix.
        """
        size = np.abs(matrix)
        count = np.zeros(matrix.shape)
        for p, q in PAIRS:
            i, j = self.members[:, p], self.members[:, q]
            for a, b in ((i, j), (j, i)):
                np.add.at(size, (a, b), self.gamma)
                np.add.at(count, (a, b), 1.0)
        return 1.01 * float((size * count).sum(axis=1).max(initial=0.0))

    def with_violated(self, gram: FloatArray, most: int, least: float) -> tuple[Triangles, int]:
        """These and the ``most`` most violated ones (by more than ``least``); returns also how many came."""
        n = len(gram)
        count = np.zeros(BINS, np.int64)
        _violations(gram, least, count)
        above = np.cumsum(count[::-1])[::-1]
        first = int(np.argmax(above <= most)) if (above <= most).any() else BINS - 1
        limit = max(least, first * 2.0 / BINS)
        room = min(int(count.sum()), 2 * most + 1000)
        members, pattern = np.zeros((room, 3), np.int32), np.zeros(room, np.int8)
        got = _collect(gram, limit, members, pattern)
        fresh = Triangles(members[:got], pattern[:got], np.zeros(got))
        new = ~np.isin(fresh.keys(n), self.keys(n))
        return (
            Triangles(
                np.concatenate([self.members, fresh.members[new]]),
                np.concatenate([self.pattern, fresh.pattern[new]]),
                np.concatenate([self.gamma, fresh.gamma[new]]),
            ),
            int(new.sum()),
        )

    def kept(self, chosen: npt.NDArray[np.bool_]) -> Triangles:
        return Triangles(self.members[chosen], self.pattern[chosen], self.gamma[chosen])

    def with_gamma(self, gamma: FloatArray) -> Triangles:
        return Triangles(self.members, self.pattern, gamma)

    def merged(self, spin: int, value: int, n: int) -> Triangles:
        """The same when a spin is fixed to ``value`` times spin 0: it becomes spin 0, later ones move up.

        X_uj = value X_0j, so an inequality of u, j, l becomes one of 0, j, l; one that has 0 already says nothing new.
        Where two become the same their multipliers are added up.
        """
        own = self.members == spin
        useless = own.any(axis=1) & (self.members[:, 0] == 0)
        t = self.kept(~useless)
        members, signs = t.members.copy(), t.signs
        # which members are the other two, and where their signs are: (u j), (u l) and (j l), for u at each place
        for place, (j, l, uj, ul, jl) in enumerate(((1, 2, 0, 1, 2), (0, 2, 0, 2, 1), (0, 1, 1, 2, 0))):
            rows = np.flatnonzero(t.members[:, place] == spin)
            members[rows] = np.stack([np.zeros(len(rows), np.int32), t.members[rows, j], t.members[rows, l]], axis=1)
            old = t.signs[rows]
            signs[rows] = np.stack([value * old[:, uj], value * old[:, ul], old[:, jl]], axis=1)
        number = np.arange(n, dtype=np.int32)
        number[spin + 1 :] -= 1
        # the pattern that has these signs: 0 without a minus, else 1, 2, 3 by the place of the plus
        pattern = np.where(signs.min(axis=1) > 0.0, 0, 1 + signs.argmax(axis=1)).astype(np.int8)
        all_of = Triangles(number[members], pattern, t.gamma)
        _, first, inverse = np.unique(all_of.keys(n), return_index=True, return_inverse=True)
        gamma = np.bincount(inverse.ravel(), all_of.gamma, len(first)).astype(np.float64)
        return Triangles(all_of.members[first], all_of.pattern[first], gamma)
