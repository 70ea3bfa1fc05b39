"""The choice between two labellings as a quadratic function of binary variables.

Binary variable b says whether a variable takes its label from the second labelling z (1) or keeps the one of x (0).  A
factor restricted to these choices is a table of 2^d numbers, d the number of its variables whose labels differ; its
multilinear coefficients come from the Moebius transform.  Monomials of degree 3 and more are replaced by quadratic
ones with auxiliary variables w that are minimised away:

* negative, any degree:  -c prod_{i=1..d} b_i = min_w c w ((d - 1) - sum b_i)                      (one auxiliary)
* positive, "fix" (Fix, Gruber, Boros, Zabih): of one factor, take all positive monomials H whose first variable is v:
      sum_H c_H prod_H b = min_y (sum_H c_H) b_v y + sum_H c_H prod_{H - v} b - sum_H c_H y prod_{H - v} b,
  the second sum joins the coefficients of lower degree, the third is negative.  A lone cubic is done by the next rule.
* positive, "hocr" (Ishikawa), degree d, n_d = floor((d - 1) / 2), c_k = 1 if d is odd and k = n_d, else 2:
      prod b = sum_{i<j} b_i b_j + min_w sum_{k=1..n_d} w_k (c_k (2 k - sum b) - 1)                 (n_d auxiliaries)

Groups are formed within a factor, so everything happens in one small local table and nothing is hashed.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from tightmap.factors.dispatch import only_pairs
from tightmap.factors.kernels import value
from tightmap.factors.pairs import is_plain, plain_cost
from tightmap.graph.graph import Graph, PairArrays
from tightmap.graph.one_form import one_form
from tightmap.runtime.compiled import compiled, lean

MAX_ARITY = 12  # differing variables of one factor: tables of 4096 entries
TINY = 1e-13  # relative to the table: a coefficient that is only rounding


class Quadratic(NamedTuple):
    """constant + sum_i linear_i b_i + sum_e weight_e b_first b_second, some b auxiliary (minimised over)."""

    constant: float
    linear: npt.NDArray[np.float64]
    first: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]
    weight: npt.NDArray[np.float64]
    variables: npt.NDArray[np.int64]  # (choices,) variables that binary variables 0, 1, ... stand for
    error: float  # bound on what rounding did to any value


@lean
def _bits(mask):
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@lean
def _negative(c, mask, extra, ids, d, linear, first, second, weight, at):
    """-c * (prod of mask) * (binary variable ``extra`` if >= 0) with one auxiliary; at = [variables, pairs]."""
    w = at[0]
    at[0] += 1
    degree = _bits(mask) + (extra >= 0)
    linear[w] = c * (degree - 1)
    e = at[1]
    if extra >= 0:
        first[e], second[e], weight[e] = w, extra, -c
        e += 1
    for k in range(d):
        if mask >> k & 1:
            first[e], second[e], weight[e] = w, ids[k], -c
            e += 1
    at[1] = e


@lean
def _hocr(c, mask, coef, ids, d, linear, first, second, weight, at):
    """c * (prod of mask), c > 0; the pairs go to the local coefficients."""
    degree = _bits(mask)
    for i in range(d):
        if mask >> i & 1:
            for j in range(i):
                if mask >> j & 1:
                    coef[1 << i | 1 << j] += c
    last = (degree - 1) // 2
    for k in range(1, last + 1):
        factor = 1.0 if degree % 2 == 1 and k == last else 2.0
        w = at[0]
        at[0] += 1
        linear[w] = c * (2.0 * k * factor - 1.0)
        for i in range(d):
            if mask >> i & 1:
                first[at[1]], second[at[1]], weight[at[1]] = w, ids[i], -c * factor
                at[1] += 1


@lean
def reduce_table(coef, d, ids, hocr, tiny, linear, first, second, weight, at):
    """Add a table of multilinear coefficients (bit k of the index = variable ids[k]) to the quadratic function."""
    size = 1 << d
    if d >= 3 and hocr:
        for mask in range(size - 1, 0, -1):
            if coef[mask] > tiny and _bits(mask) >= 3:
                _hocr(coef[mask], mask, coef, ids, d, linear, first, second, weight, at)
                coef[mask] = 0.0
    elif d >= 3:
        for v in range(d):
            total = 0.0
            count = 0
            widest = 0
            for mask in range(1 << v, size, 1 << (v + 1)):  # every subset whose smallest member is v
                if coef[mask] > tiny and _bits(mask) >= 3:
                    total += coef[mask]
                    count += 1
                    widest = mask
            if count == 1 and _bits(widest) == 3:
                _hocr(coef[widest], widest, coef, ids, d, linear, first, second, weight, at)
                coef[widest] = 0.0
            elif count > 0:
                y = at[0]
                at[0] += 1
                linear[y] = 0.0
                first[at[1]], second[at[1]], weight[at[1]] = y, ids[v], total
                at[1] += 1
                for mask in range(1 << v, size, 1 << (v + 1)):
                    c = coef[mask]
                    if c > tiny and _bits(mask) >= 3:
                        rest = mask ^ (1 << v)
                        coef[rest] += c
                        _negative(c, rest, y, ids, d, linear, first, second, weight, at)
                        coef[mask] = 0.0
    for mask in range(1, size):
        c = coef[mask]
        if c == 0.0:
            continue
        degree = _bits(mask)
        if degree >= 3:
            if c < -tiny:
                _negative(-c, mask, -1, ids, d, linear, first, second, weight, at)
            continue
        low = 0
        while not mask >> low & 1:
            low += 1
        if degree == 1:
            linear[ids[low]] += c
        else:
            high = low + 1
            while not mask >> high & 1:
                high += 1
            first[at[1]], second[at[1]], weight[at[1]] = ids[low], ids[high], c
            at[1] += 1


@compiled(inline="always")
def _choice(index, low, i):
    """Number of the binary variable of variable i, or -1; index begins at variable ``low``."""
    k = i - low
    return index[k] if 0 <= k < len(index) else -1


@lean
def _collect_table(g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums):
    """Reduce one factor of any kind.  ``mixed`` equals x, before and after."""
    d = 0
    for s in range(g.scope_start[f], g.scope_start[f + 1]):
        i = g.scope[s]
        b = _choice(index, low, i)
        if b >= 0:
            ids[d] = b
            who[d] = i
            d += 1
    size = 1 << d
    largest = 0.0
    for mask in range(size):
        for k in range(d):
            mixed[who[k]] = z[who[k]] if mask >> k & 1 else x[who[k]]
        coef[mask] = value(g, f, mixed)
        largest = max(largest, abs(coef[mask]))
    for k in range(d):
        mixed[who[k]] = x[who[k]]
    for k in range(d):
        for mask in range(size):
            if mask >> k & 1:
                coef[mask] -= coef[mask ^ (1 << k)]
    sums[0] += coef[0]
    tiny = TINY * largest if d >= 3 else 0.0
    sums[1] += 2.0**-52 * size * (size + 2.0) * largest + size * tiny
    reduce_table(coef, d, ids, hocr, tiny, linear, first, second, weight, at)


def _table(g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums):
    if not isinstance(g, PairArrays):
        _collect_table(g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums)


@overload(_table)
def _overload_table(g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums):
    if only_pairs(g):
        return lambda g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums: None
    return lambda g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums: (
        _collect_table(g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums)
    )


@compiled
def _collect(
    g, factors, x, z, mixed, index, low, begin, hocr, linear, first, second, weight, at, sums, room_variables,
    room_pairs,
):  # fmt: skip
    """Reduce factors[begin:] while a factor of any size fits; returns the position of the first one not done."""
    kind, weights, param, params, scope_start, scope, cards = (
        g.kind, g.weight, g.param, g.params, g.scope_start, g.scope, g.cards,
    )  # fmt: skip
    coef = np.zeros(1 << MAX_ARITY)
    ids = np.zeros(MAX_ARITY, np.int64)
    who = np.zeros(MAX_ARITY, np.int64)
    for t in range(begin, len(factors)):
        f = factors[t]
        if at[0] + room_variables > len(linear) or at[1] + room_pairs > len(first):
            return t
        a = scope_start[f]
        if scope_start[f + 1] - a > 2 or not is_plain(kind[f]):
            _table(g, f, x, z, mixed, index, low, coef, ids, who, hocr, linear, first, second, weight, at, sums)
            continue
        # pairs in place: calling ``value`` with all arrays costs ten times the work
        i = scope[a]
        j = scope[a + 1]
        wide = np.int64(cards[j])
        e00 = plain_cost(kind[f], weights[f], params, param[f], wide, x[i], x[j])
        e10 = plain_cost(kind[f], weights[f], params, param[f], wide, z[i], x[j])
        e01 = plain_cost(kind[f], weights[f], params, param[f], wide, x[i], z[j])
        e11 = plain_cost(kind[f], weights[f], params, param[f], wide, z[i], z[j])
        sums[0] += e00
        sums[1] += 2.0**-50 * (abs(e00) + abs(e10) + abs(e01) + abs(e11))
        bi = _choice(index, low, i)
        bj = _choice(index, low, j)
        if bi >= 0:
            linear[bi] += e10 - e00
        if bj >= 0:
            linear[bj] += e01 - e00
        q = e00 + e11 - e01 - e10
        if q != 0.0 and bi >= 0 and bj >= 0:
            first[at[1]], second[at[1]], weight[at[1]] = bi, bj, q
            at[1] += 1
    return len(factors)


@one_form
@compiled
def _factors_around(g, variables, index, low):
    """Factors that contain one of the variables, each once: at the first of its variables that is among them."""
    room = 0
    for i in variables:
        room += g.adj_start[i + 1] - g.adj_start[i]
    found = np.empty(room, np.int32)
    widest = np.int64(0)
    count = 0
    for i in variables:
        for t in range(g.adj_start[i], g.adj_start[i + 1]):
            f = int(g.adj_factor[t])
            begin = g.scope_start[f]
            here = begin + g.adj_pos[t]
            first = True
            for s in range(begin, here):
                if _choice(index, low, g.scope[s]) >= 0:
                    first = False
                    break
            if not first:
                continue
            found[count] = f
            count += 1
            width = 1
            for s in range(here + 1, g.scope_start[f + 1]):
                width += _choice(index, low, g.scope[s]) >= 0
            widest = max(widest, width)
    return found[:count], widest


def quadratise(
    graph: Graph,
    x: npt.NDArray[np.int64],
    z: npt.NDArray[np.int64],
    method: str = "fix",
    variables: npt.NDArray[np.int64] | None = None,
) -> Quadratic | None:
    """The energy of all mixtures of x (b = 0) and z (b = 1); None if too many variables of one factor differ.

    Only what depends on the choices is counted: unaries of the variables that differ and the factors around them.
    ``variables``, ascending: only these have a choice, the others keep x.
    """
    g = graph.arrays
    if variables is None:
        variables = np.flatnonzero(x != z)
    n = len(variables)
    low = int(variables[0]) if n else 0
    index = np.full(int(variables[-1]) + 1 - low if n else 0, -1, np.int32)
    index[variables - low] = np.arange(n, dtype=np.int32)
    factors, widest = _factors_around(g, variables, index, low)
    m = len(factors)
    mixed = x if isinstance(g, PairArrays) else x.copy()
    if widest > MAX_ARITY:
        return None
    # one factor of degree d has at most 2^d auxiliaries with d + 1 pairs each, plus its own pairs
    room_variables = 0 if widest < 3 else 2 << widest
    room_pairs = 1 if widest < 3 else (widest + 2) * (2 << widest)
    linear = np.zeros(n + m // 4 + 4 * room_variables + 1)
    size = m + (m if widest > 2 else 0) + 4 * room_pairs
    first, second, weight = np.zeros(size, np.int32), np.zeros(size, np.int32), np.zeros(size)
    at = np.array([n, 0], np.int64)
    sums = np.zeros(2)
    done = 0
    while True:
        done = _collect(
            g, factors, x, z, mixed, index, low, done, method == "hocr", linear, first, second, weight, at, sums,
            room_variables, room_pairs,
        )  # fmt: skip
        if done == m:
            break
        linear = np.concatenate([linear, np.zeros(len(linear) + room_variables)])
        first, second = (np.concatenate([a, np.zeros(len(a) + room_pairs, np.int32)]) for a in (first, second))
        weight = np.concatenate([weight, np.zeros(len(weight) + room_pairs)])
    start = g.offset[variables]
    own = g.unary[start + x[variables]]
    constant = float(sums[0]) + float(own.sum())
    linear = linear[: at[0]]
    linear[:n] += g.unary[start + z[variables]] - own
    e = int(at[1])
    error = float(sums[1]) + 2.0**-52 * (float(np.abs(own).sum()) + float(np.abs(linear).sum())) * 4.0
    return Quadratic(constant, linear, first[:e], second[:e], weight[:e], variables, error)
