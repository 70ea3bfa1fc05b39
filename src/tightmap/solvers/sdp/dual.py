"""The certified bound of the relaxation: a diagonal shift, and a Cholesky factorisation that proves it is enough.

For any numbers y_i and any t with W + Diag(y) + t I positive semidefinite,

    1/2 s^T W s = 1/2 s^T (W + Diag(y) + t I) s - 1/2 sum_i (y_i + t) >= -1/2 sum_i (y_i + t)    for all spins s.

At the optimum of the relaxation y_i = |g_i| and t = 0 will do.  Elsewhere t has to be at least minus the smallest
eigenvalue, which an eigenvalue routine estimates but does not prove.  The proof is a factorisation: write
gamma_k = k u / (1 - k u), u = 2^-53, and M for the matrix as it is stored.  If the Cholesky factorisation of M - c I,
in floating point and in whatever order of its sums, runs to its end, and

    c >= gamma_{N+4} / (1 - gamma_{N+4}) * trace(M) + 2 u max_i |M_ii|    (the second term: forming M - c I),

then M is positive semidefinite (Rump, Verification of positive definiteness, BIT 2006).  M differs from the matrix that
is meant by the roundings of its entries; a bound of the norm of that difference is added to c.  (Underflow does not
matter: rows have norms near 1, so c is above 1e-17.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, eigsh

from tightmap.energy.certificate import UNIT
from tightmap.graph.graph import FloatArray
from tightmap.runtime.compiled import compiled

SMALL = 1500  # spins up to which our own factorisation is used: one thread, and the same result on every machine
TRIES = 60
CLOSER = 10  # improvements of the shift of a small matrix
PROVEN = (
    150  # spins up to which the last digits of the shift are worth another factorisation: they may prove optimality
)
NEAR = 1e-7  # part of the bound that is left aside otherwise
SPEED = 2e9  # operations of a factorisation in a second, about


class Shift(NamedTuple):
    """A proven shift t and the bound -1/2 sum (y + t) of the form, which is off by ``error`` at most."""

    t: float
    bound: float
    error: float


def seconds_needed(count: int) -> float:
    """About how long the proof takes at most, for that many spins."""
    return 2.0 * count**3 / 3.0 / SPEED


@compiled(_nrt=False, fastmath={"contract", "reassoc", "nsz"})
def _factorise(matrix, shift, factor):
    """Cholesky factor of matrix + shift I, four rows at a time; False when there is none."""
    n = len(matrix)
    for first in range(0, n, 4):
        last = min(first + 4, n)
        done = 0
        if last == first + 4:  # the columns before these rows: each row of the factor is read once for all four
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
                        return False
                    factor[i, i] = np.sqrt(square)
    return True


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

    def __init__(self, matrix: FloatArray, y: FloatArray, roundings: float) -> None:
        n = len(y)
        matrix[np.diag_indices(n)] = y
        self.matrix, self.y, self.roundings = matrix, y, roundings
        self.sum, self.largest = math.fsum(y.tolist()), float(y.max())
        k = (n + 4) * UNIT
        self.part = (k / (1.0 - k)) / (1.0 - k / (1.0 - k))
        self.factor = np.zeros((n, n)) if n <= SMALL else None

    def needed(self, t: float) -> float:
        """c of the theorem above for the matrix with this shift."""
        trace = max(self.sum + len(self.y) * t, 0.0)
        return 1.01 * (self.part * trace + UNIT * (4.0 * (self.largest + abs(t)) + self.roundings))

    def proves(self, t: float) -> bool:
        """The matrix with the shift t is positive semidefinite, beyond doubt."""
        shift = t - self.needed(t)
        if self.factor is not None:
            return bool(_factorise(self.matrix, shift, self.factor))
        shifted = self.matrix.copy()
        shifted[np.diag_indices(len(self.y))] += shift
        try:
            linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return False
        return True

    def bound(self, t: float) -> Shift:
        total = self.sum + len(self.y) * t
        return Shift(t, -0.5 * total, 4.0 * UNIT * (abs(total) + 2.0 * len(self.y) * abs(t)))

    def first(self, t: float, step: float) -> float:
        """The first of t, t + step, t + 4 step, t + 16 step, ... that is proven (inf if none is)."""
        for _ in range(TRIES):
            if self.proves(t):
                return t
            t += step
            step = max(4.0 * step, self.needed(t))
        return math.inf

    def closer(self, t: float) -> float:
        """A proven shift next to the least one, from one that was just proven: inverse iteration names the next."""
        assert self.factor is not None
        x = 1.0 + 0.5 * np.modf(0.618034 * np.arange(len(self.y)))[0]
        for _ in range(CLOSER):
            least = -float(_rayleigh(self.matrix, self.factor, x, 4))  # never above what is needed
            new = least + 0.03 * (t - least) + 2.0 * self.needed(t)
            near = NEAR * self.sum / len(x) if len(x) > PROVEN else 0.0
            if new > t - 0.1 * (t - least) or t - least <= near:
                break
            if not self.proves(new):
                if not self.proves(0.5 * (new + t)):
                    break
                new = 0.5 * (new + t)
            t = new
        return t


def _estimate(matrix: FloatArray, seed: FloatArray) -> float:
    """About the smallest eigenvalue, by Lanczos; nothing depends on its being right."""
    operator = sparse.csr_array(matrix) if np.count_nonzero(matrix) < 0.1 * matrix.size else matrix
    try:
        return float(eigsh(operator, 1, which="SA", v0=seed, tol=1e-3, maxiter=300, return_eigenvectors=False)[0])
    except ArpackNoConvergence as partial:
        return float(partial.eigenvalues[0]) if len(partial.eigenvalues) else 0.0
    except ArpackError:
        return 0.0


def certified_shift(matrix: FloatArray, y: FloatArray, roundings: float = 0.0) -> Shift:
    """The bound of the form of ``matrix`` (dense, symmetric, zero diagonal; it is overwritten) and multipliers y >= 0.

    ``roundings``: the stored matrix differs from the one that is meant by that many units of 2^-53, in norm.
    """
    prover = _Prover(matrix, y, roundings)
    mean = prover.sum / len(y)
    if mean == 0.0:  # no vector has a neighbour: the form is zero
        return Shift(0.0, 0.0, 0.0) if not matrix.any() else Shift(math.inf, -math.inf, 0.0)
    if prover.factor is not None:
        t = prover.first(1e-4 * mean, 1e-3 * mean)
        t = prover.closer(t) if t < math.inf else t
    else:
        t = -_estimate(matrix, np.sqrt(y) + 1e-3 * math.sqrt(mean))
        step = 1e-6 * mean + 0.02 * abs(t)
        t = prover.first(t + step, step)
    return prover.bound(t) if t < math.inf else Shift(math.inf, -math.inf, 0.0)
