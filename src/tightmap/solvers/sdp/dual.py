"""The certified bound of the relaxation: a diagonal shift, and a Cholesky factorisation that proves it is enough.

For any numbers y_i and any t with W + Diag(y) + t I positive semidefinite,

    1/2 s^T W s = 1/2 s^T (W + Diag(y) + t I) s - 1/2 sum_i (y_i + t) >= -1/2 sum_i (y_i + t)    for all spins s.

At the optimum of the relaxation y_i = |g_i| and t = 0 will do.  Elsewhere t has to be at least minus the smallest
eigenvalue, which inverse iteration estimates but does not prove.  The proof is a factorisation: write
gamma_k = k u / (1 - k u), u = 2^-53, and M for the matrix as it is stored.  If the Cholesky factorisation of M - c I,
in floating point and in whatever order of its sums, runs to its end, and

    c >= gamma_{N+4} / (1 - gamma_{N+4}) * trace(M) + 2 u max_i |M_ii|    (the second term: forming M - c I),

then M is positive semidefinite (Rump, Verification of positive definiteness, BIT 2006).  M differs from the matrix that
is meant by the roundings of its entries; a bound of the norm of that difference is added to c.  (Underflow does not
matter: rows have norms near 1, so c is above 1e-17.)  It is our own, not LAPACK's: that one would wake threads of its
own, round by their number, and not look at the clock.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from tightmap.energy.certificate import UNIT
from tightmap.graph.graph import FloatArray
from tightmap.moves.context import Context
from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import LOOK, TimeUp, end_of, late, time_left

TRIES = 60
CLOSER = 10  # improvements of a proven shift
PROVEN = 150  # spins up to which the last digits of the shift may prove optimality, and are worth a factorisation
MANY = 1000  # spins from which a factorisation takes seconds
NEAR, FAR = 1e-7, 1e-5  # parts of the bound that are left aside above these sizes
NONE, FOUND, LATE = 0, 1, 2  # what a factorisation says


class Shift(NamedTuple):
    """A proven shift t and the bound -1/2 sum (y + t) of the form, which is off by ``error`` at most."""

    t: float
    bound: float
    error: float


@compiled(_nrt=False, fastmath={"contract", "reassoc", "nsz"})
def _factorise(matrix, shift, factor, left):
    """Cholesky factor of matrix + shift I: FOUND, or NONE when there is none, or LATE."""
    until = end_of(left)
    n = len(matrix)
    work = 0
    for first in range(0, n, 4):
        work += first * first
        if work > LOOK:
            work = 0
            if late(until):
                return LATE
        last = min(first + 4, n)
        done = 0
        if last == first + 4:  # the columns before four rows: each row of the factor is read once for all of them
            for j in range(first):
                a = b = c = d = 0.0
                for k in range(j):
                    x = factor[j, k]
                    a += factor[first, k] * x
                    b += factor[first + 1, k] * x
                    c += factor[first + 2, k] * x
                    d += factor[first + 3, k] * x
                x = factor[j, j]
                factor[first, j] = (matrix[first, j] - a) / x
                factor[first + 1, j] = (matrix[first + 1, j] - b) / x
                factor[first + 2, j] = (matrix[first + 2, j] - c) / x
                factor[first + 3, j] = (matrix[first + 3, j] - d) / x
            done = first
        for i in range(first, last):
            for j in range(done, i + 1):
                total = 0.0
                for k in range(j):
                    total += factor[i, k] * factor[j, k]
                if i > j:
                    factor[i, j] = (matrix[i, j] - total) / factor[j, j]
                else:
                    square = (matrix[i, i] + shift) - total
                    if not square > 0.0:
                        return NONE
                    factor[i, i] = np.sqrt(square)
    return FOUND


@compiled(_nrt=False, fastmath={"contract", "reassoc", "nsz"})
def _rayleigh(matrix, factor, x, steps):
    """x^T M x of the unit vector x after so many steps of inverse iteration with the factor."""
    n = len(x)
    for _ in range(steps):
        for i in range(n):
            total = x[i]
            for k in range(i):
                total -= factor[i, k] * x[k]
            x[i] = total / factor[i, i]
        for i in range(n - 1, -1, -1):
            x[i] /= factor[i, i]
            for k in range(i):
                x[k] -= factor[i, k] * x[i]
        size = 0.0
        for i in range(n):
            size += x[i] * x[i]
        size = 1.0 / np.sqrt(size)
        for i in range(n):
            x[i] *= size
    value = 0.0
    for i in range(n):
        row = 0.0
        for j in range(n):
            row += matrix[i, j] * x[j]
        value += row * x[i]
    return value


class _Prover:
    """The matrix W + Diag(y), and shifts of it that are proven."""

    def __init__(self, matrix: FloatArray, y: FloatArray, roundings: float, context: Context | None) -> None:
        n = len(y)
        matrix[np.diag_indices(n)] = y
        self.matrix, self.y, self.roundings, self.context = matrix, y, roundings, context
        self.sum, self.largest = math.fsum(y.tolist()), float(y.max())
        k = (n + 4) * UNIT
        self.part = (k / (1.0 - k)) / (1.0 - k / (1.0 - k))
        self.factor = np.zeros((n, n))

    def needed(self, t: float) -> float:
        """c of the theorem above for the matrix with this shift."""
        trace = max(self.sum + len(self.y) * t, 0.0)
        return 1.01 * (self.part * trace + UNIT * (4.0 * (self.largest + abs(t)) + self.roundings))

    def proves(self, t: float) -> bool:
        """The matrix with the shift t is positive semidefinite, beyond doubt; raises TimeUp."""
        said = _factorise(self.matrix, t - self.needed(t), self.factor, time_left(self.context))
        if said == LATE:
            raise TimeUp
        return bool(said == FOUND)

    def first(self, t: float, step: float) -> float:
        """The first of t, t + step, t + 5 step, t + 21 step, ... that is proven (inf if none is)."""
        for _ in range(TRIES):
            if self.proves(t):
                return t
            t += step
            step = max(4.0 * step, self.needed(t))
        return math.inf

    def closer(self, t: float) -> float:
        """A proven shift next to the least one, from one that was just proven: inverse iteration names the next."""
        n = len(self.y)
        near = (0.0 if n <= PROVEN else NEAR if n <= MANY else FAR) * self.sum / n
        x = 1.0 + 0.5 * np.modf(0.618034 * np.arange(n))[0]
        for _ in range(CLOSER):
            least = -float(_rayleigh(self.matrix, self.factor, x, 4))  # never above what is needed
            new = least + 0.03 * (t - least) + 2.0 * self.needed(t)
            if new > t - 0.1 * (t - least) or t - least <= near:
                break
            if not self.proves(new):
                new = 0.5 * (new + t)
                if not self.proves(new):
                    break
            t = new
        return t


def certified_shift(matrix: FloatArray, y: FloatArray, roundings: float = 0.0, context: Context | None = None) -> Shift:
    """The bound of the form of ``matrix`` (dense, symmetric, zero diagonal; it is overwritten) and multipliers y >= 0.

    ``roundings``: the stored matrix differs from the one that is meant by that many units of 2^-53, in norm.  Without a
    proof, for instance because time was up, the bound is -inf.
    """
    n = len(y)
    prover = _Prover(matrix, y, roundings, context)
    mean = prover.sum / n
    if mean == 0.0:  # no vector has a neighbour: the form is zero, or these multipliers are of no use
        return Shift(math.inf, -math.inf, 0.0) if matrix.any() else Shift(0.0, 0.0, 0.0)
    t = math.inf
    with suppress(TimeUp):
        t = prover.first(1e-5 * mean, 1e-4 * mean)
        if t < math.inf:
            t = prover.closer(t)
    if t == math.inf:
        return Shift(t, -math.inf, 0.0)
    total = prover.sum + n * t
    return Shift(t, -0.5 * total, 4.0 * UNIT * (abs(total) + 2.0 * n * abs(t)))
