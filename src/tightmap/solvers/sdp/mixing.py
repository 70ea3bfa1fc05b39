"""Kernels of the low-rank relaxation: unit vectors in place of spins.

    minimise 1/2 sum_ij A_ij v_i . v_j   over unit vectors v_i of R^k

The form is linear in one vector given the others, so the exact step for vector i is ("mixing")

    g_i = sum_j A_ij v_j,    v_i <- -g_i / |g_i|,

and for k > sqrt(2 N) its limit is, from almost every start, the optimum of the semidefinite relaxation (X = V V^T).

Triangle inequalities (triangles.py) join by an augmented Lagrangian.  With slack_t = T_t(X) + 1 and gamma_t >= 0,

    L(V) = 1/2 <A, X> + 1 / (2 sigma) sum_t max(0, gamma_t - sigma slack_t)^2,
    dL / dv_i = sum_j W_ij v_j,    W = A - sum_t weight_t T_t,    weight_t = max(0, gamma_t - sigma slack_t),

so W, X and the weights are kept up to date while vectors change, and the step becomes

    v_i <- rho_i v_i - g_i, normalised,   rho_i = damping * sigma * sum over the active t at i of |dT_t / dv_i|^2,

where rho_i stands for the curvature of the penalty.  Now and then gamma <- weight.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.runtime.compiled import compiled
from tightmap.runtime.pace import LOOK, end_of, late

FAST = {"contract", "reassoc", "nsz", "arcp"}


def rank(count: int) -> int:
    """Length of the vectors of that many spins: above sqrt(2 N), and whole registers."""
    return 8 * int(np.ceil((np.sqrt(2.0 * count) + 1.0) / 8.0))


@compiled(_nrt=False, fastmath=FAST)
def mix(start, index, weight, vectors, g, norms, gained, begin, left):
    """The step for the vectors from ``begin`` on; the sparse rows of A are weight[start[i]:start[i + 1]].

    norms[i] = |g_i|; gained[0] adds up by how much the form has fallen.  Returns where it is: at the end, or where
    time was up.
    """
    until = end_of(left)
    n, k = vectors.shape
    work = 0
    for i in range(begin, n):
        work += k + (start[i + 1] - start[i]) * k // 4
        if work > LOOK:
            work = 0
            if late(until):
                return i
        for c in range(k):
            g[c] = 0.0
        for p in range(start[i], start[i + 1]):
            j = index[p]
            w = weight[p]
            for c in range(k):
                g[c] += w * vectors[j, c]
        square = 0.0
        before = 0.0
        for c in range(k):
            square += g[c] * g[c]
            before += g[c] * vectors[i, c]
        norm = np.sqrt(square)
        norms[i] = norm
        if norm > 0.0:
            gained[0] += norm + before
            for c in range(k):
                vectors[i, c] = -g[c] / norm
    return n


@compiled(_nrt=False, fastmath=FAST)
def mix_dense(matrix, vectors, g, norms, sweeps):
    """So many sweeps of the same with a dense matrix; returns what the last one gained."""
    n, k = vectors.shape
    gained = 0.0
    for _ in range(sweeps):
        gained = 0.0
        for i in range(n):
            for c in range(k):
                g[c] = 0.0
            for j in range(n):
                w = matrix[i, j]
                if w != 0.0:
                    for c in range(k):
                        g[c] += w * vectors[j, c]
            square = 0.0
            before = 0.0
            for c in range(k):
                square += g[c] * g[c]
                before += g[c] * vectors[i, c]
            norm = np.sqrt(square)
            norms[i] = norm
            if norm > 0.0:
                gained += norm + before
                for c in range(k):
                    vectors[i, c] = -g[c] / norm
    return gained


@compiled(_nrt=False, fastmath=FAST)
def mix_with_triangles(
    matrix, vectors, gram, g, rho, members, signs, gamma, weight, start, listed, sigma, damping, sweeps, left
):
    """Sweeps on the augmented Lagrangian; matrix is W and gram X, both kept up to date, as are the weights.

    The triangles of spin i are listed[start[i]:start[i + 1]].  Returns the sweeps that were made before time was up.
    """
    until = end_of(left)
    n, k = vectors.shape
    work = 0
    for sweep in range(sweeps):
        for i in range(n):
            work += n * k // 2 + 10 * (start[i + 1] - start[i])
            for c in range(k):
                g[c] = -rho[i] * vectors[i, c]
            for j in range(n):
                w = matrix[i, j]
                if w != 0.0:
                    for c in range(k):
                        g[c] += w * vectors[j, c]
            square = 0.0
            for c in range(k):
                square += g[c] * g[c]
            if square == 0.0:
                continue
            inverse = -1.0 / np.sqrt(square)
            for c in range(k):
                g[c] *= inverse
                vectors[i, c] = g[c]
            for j in range(n):
                dot = 0.0
                for c in range(k):
                    dot += g[c] * vectors[j, c]
                gram[i, j] = dot
                gram[j, i] = dot
            curvature = 0.0
            for p in range(start[i], start[i + 1]):
                t = listed[p]
                a = members[t, 0]
                b = members[t, 1]
                c = members[t, 2]
                ab = signs[t, 0] * gram[a, b]
                ac = signs[t, 1] * gram[a, c]
                bc = signs[t, 2] * gram[b, c]
                new = gamma[t] - sigma * (1.0 + ab + ac + bc)
                if new > 0.0:
                    # the product of the three signs is 1, so the pair without i has the sign of the other two together
                    curvature += 2.0 + 2.0 * (bc if i == a else ac if i == b else ab)
                else:
                    new = 0.0
                change = weight[t] - new
                if change != 0.0:
                    weight[t] = new
                    d = change * signs[t, 0]
                    matrix[a, b] += d
                    matrix[b, a] += d
                    d = change * signs[t, 1]
                    matrix[a, c] += d
                    matrix[c, a] += d
                    d = change * signs[t, 2]
                    matrix[b, c] += d
                    matrix[c, b] += d
            rho[i] = damping * sigma * curvature
        if work > LOOK:
            work = 0
            if late(until):
                return sweep + 1
    return sweeps


@compiled(_nrt=False, fastmath=FAST)
def products(vectors, gram):
    """X = V V^T; on this thread alone, so that it rounds the same everywhere."""
    n, k = vectors.shape
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for c in range(k):
                total += vectors[i, c] * vectors[j, c]
            gram[i, j] = total
            gram[j, i] = total
