"""The certified bound of the relaxation: a diagonal shift, and a Cholesky factorisation that proves it is enough.

For any numbers y_i and any t with W + Diag(y) + t I positive semidefinite,

    1/2 s^T W s = 1/2 s^T (W + Diag(y) + t I) s - 1/2 sum_i (y_i + t) >= -1/2 sum_i (y_i + t)    for all spins s.

At the optimum of the relaxation y_i = |g_i| and t = 0 will do.  Elsewhere t has to be at least minus the smallest
eigenvalue, which an eigenvalue routine estimates but does not prove.  The proof is a factorisation: write
gamma_k = k u / (1 - k u), u = 2^-53, and M for the matrix as it is stored.  If the Cholesky factorisation of M - c I, in
floating point and in whatever order of its sums, runs to its end, and

    c >= gamma_{N+2} / (1 - gamma_{N+2}) * trace(M) + 2 u max_i |M_ii|    (the second term: forming M - c I),

then M is positive semidefinite (Rump, Verification of positive definiteness, BIT 2006).  M differs from the matrix that
is meant by the roundings of its entries; a bound of the norm of that difference is added to c.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, eigsh

from tightmap.energy.certificate import UNIT
from tightmap.graph.graph import FloatArray

FULL = 300  # spins up to which all eigenvalues are computed; above it, the smallest one by Lanczos
TRIES = 60
SPEED = 4e9  # additions and multiplications of a factorisation in a second, at least


class Shift(NamedTuple):
    """A proven shift t, and the bound -1/2 sum (y + t) of the form, rounded down by ``error`` at most."""

    t: float
    bound: float
    error: float


def seconds_needed(count: int) -> float:
    """About how long the proof takes at most, for that many spins."""
    return 4.0 * count**3 / 3.0 / SPEED


def _estimate(matrix: FloatArray, seed: FloatArray) -> float:
    """About the smallest eigenvalue; nothing depends on its being right."""
    if len(matrix) <= FULL:
        return float(linalg.eigvalsh(matrix, subset_by_index=(0, 0), check_finite=False)[0])
    operator = sparse.csr_array(matrix) if np.count_nonzero(matrix) < 0.1 * matrix.size else matrix
    try:
        return float(eigsh(operator, 1, which="SA", v0=seed, tol=1e-3, maxiter=300, return_eigenvectors=False)[0])
    except ArpackNoConvergence as partial:
        return float(partial.eigenvalues[0]) if len(partial.eigenvalues) else 0.0
    except ArpackError:
        return 0.0


def _factorises(matrix: FloatArray, shift: float) -> bool:
    shifted = matrix.copy()
    shifted[np.diag_indices(len(matrix))] += shift
    try:
        linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    return True


def certified_shift(matrix: FloatArray, y: FloatArray, roundings: float = 0.0) -> Shift:
    """The bound of the form of ``matrix`` (dense, symmetric, zero diagonal; it is overwritten) and multipliers y >= 0.

    ``roundings``: the stored matrix differs from the one that is meant by that many units of 2^-53, in norm.
    """
    n = len(y)
    at = np.diag_indices(n)
    matrix[at] = y
    mean = float(np.abs(y).mean())
    k = (n + 2) * UNIT
    factor = (k / (1.0 - k)) / (1.0 - k / (1.0 - k))
    estimate = -_estimate(matrix, np.sqrt(np.abs(y)) + 1e-3 * mean + 1e-300)
    extra = 1e-13 * mean if n <= FULL else 1e-6 * mean + 0.02 * abs(estimate)
    for _ in range(TRIES):
        t = estimate + extra
        trace = math.fsum(y.tolist()) + n * t
        proof = 1.01 * (factor * max(trace, 0.0) + 4.0 * UNIT * (float(y.max()) + abs(t)) + UNIT * roundings)
        if _factorises(matrix, t - proof):
            return Shift(t, -0.5 * trace, 4.0 * UNIT * (abs(trace) + 2.0 * n * abs(t)))
        extra = max(4.0 * extra, 2.0 * proof, 1e-300)
    return Shift(math.inf, -math.inf, 0.0)
