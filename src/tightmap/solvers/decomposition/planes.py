"""Planes of subproblems and the proximal step over them, block by block.

Every labelling x of a subproblem T is a plane above its minimum: min E_T(u) <= v(x) + <u, e_x>, with v(x) the cost of
its factors and e_x the one-hot vectors of x.  T keeps some planes with weights a >= 0 that sum to 1, hence an average
(mu_T, v_T), and a plane 0 into which others were merged when room was short (the aggregate).  Given a centre u^ and c,

    max over u of  sum_T min over its planes [v + <u_T, e>] - 1/(2 c) ||u - u^||^2,   sum_T u_i^T = theta_i
    = min over weights of  F = sum_T (v_T + <u^_T, mu_T>) + c/2 sum_i sum_T ||mu_{T,i} - mean_i||^2,

and the maximiser is u = u^ + c (mu - mean).  With the other blocks fixed, n_i copies of variable i and R_i the sum of
the other copies' averages, the block of T is the small quadratic programme

    min_a  sum_k a_k (v_k + <u^_T - c R / n, e_k>) + c/2 a' G a,   G_kl = sum of 1 - 1/n_i over i with x_k(i) = x_l(i),

solved by moving weight from the worst plane that has some to the best one, as far as it pays.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import FloatArray
from tightmap.runtime.compiled import compiled, lean
from tightmap.solvers.decomposition.subproblems import Subproblems

MOST = 40_000_000  # products, and labels, of all planes together: more and larger subproblems keep fewer planes


class Planes(NamedTuple):
    """Planes 1..kept of every subproblem, plane 0 is the aggregate."""

    labels: npt.NDArray[np.int32]  # of plane k of T, from place_start[T] * limit + (k - 1) * length on
    value: FloatArray  # (T, limit + 1)
    weight: FloatArray  # (T, limit + 1)
    product: FloatArray  # (T, limit + 1, limit + 1) G
    idle: npt.NDArray[np.int32]  # (T, limit + 1) rounds since the plane had weight
    kept: npt.NDArray[np.int32]  # (T,) how many planes
    aggregate: FloatArray  # over all copies
    average: FloatArray  # mu, over all copies
    total: FloatArray  # sum of mu over the copies of a variable, in the layout of the unaries
    cost: FloatArray  # (T,) v_T
    spread: FloatArray  # (places,) 1 - 1 / n_i


def make_planes(sub: Subproblems, unaries: int, copies: npt.NDArray[np.int64], limit: int) -> Planes:
    limit = int(max(3, min(limit, (MOST / max(1, sub.number)) ** 0.5 - 1, MOST / max(1, len(sub.variable)))))
    shape = (sub.number, limit + 1)
    return Planes(
        np.zeros(len(sub.variable) * limit, dtype=np.int32),
        np.zeros(shape),
        np.zeros(shape),
        np.zeros((*shape, limit + 1)),
        np.zeros(shape, dtype=np.int32),
        np.zeros(sub.number, dtype=np.int32),
        np.zeros(sub.entries),
        np.zeros(sub.entries),
        np.zeros(unaries),
        np.zeros(sub.number),
        1.0 - 1.0 / copies[sub.variable],
    )


@lean
def _agreement(sub, planes, t, k, l, limit):
    """G_kl of two planes, of which the second may be the aggregate."""
    begin, end = sub.place_start[t], sub.place_start[t + 1]
    length = end - begin
    own = begin * limit + (k - 1) * length
    other = begin * limit + (l - 1) * length
    total = 0.0
    for q in range(length):
        if l == 0:
            total += planes.spread[begin + q] * planes.aggregate[sub.at[begin + q] + planes.labels[own + q]]
        elif planes.labels[own + q] == planes.labels[other + q]:
            total += planes.spread[begin + q]
    return total


@lean
def _merge(sub, planes, t, k, limit):
    """Plane k becomes part of the aggregate, which keeps the average as it is."""
    begin, end = sub.place_start[t], sub.place_start[t + 1]
    length = end - begin
    mine, old = planes.weight[t, k], planes.weight[t, 0]
    share = mine / (mine + old) if mine + old > 0.0 else 1.0
    for s in range(sub.at[begin], sub.at[end]):
        planes.aggregate[s] *= 1.0 - share
    base = begin * limit + (k - 1) * length
    square = 0.0
    for q in range(length):
        planes.aggregate[sub.at[begin + q] + planes.labels[base + q]] += share
    for q in range(begin, end):
        for s in range(sub.at[q], sub.at[q + 1]):
            square += planes.spread[q] * planes.aggregate[s] * planes.aggregate[s]
    planes.value[t, 0] += share * (planes.value[t, k] - planes.value[t, 0])
    planes.weight[t, 0] = mine + old
    planes.weight[t, k] = 0.0
    planes.product[t, 0, 0] = square
    for l in range(1, planes.kept[t] + 1):
        planes.product[t, 0, l] = _agreement(sub, planes, t, l, 0, limit)
        planes.product[t, l, 0] = planes.product[t, 0, l]


@lean
def _free_slot(sub, planes, t, limit):
    """Where a new plane goes: behind the others, in place of the one idle for longest, or of one that is merged."""
    if planes.kept[t] < limit:
        planes.kept[t] += 1
        return planes.kept[t]
    slot = 1
    for k in range(2, limit + 1):
        if planes.idle[t, k] > planes.idle[t, slot] or (
            planes.idle[t, k] == planes.idle[t, slot] and planes.weight[t, k] < planes.weight[t, slot]
        ):
            slot = k
    if planes.weight[t, slot] > 0.0:
        _merge(sub, planes, t, slot, limit)
    return slot


@compiled
def add_planes(first, last, sub, planes, x, factors):
    """The labellings x are planes of their subproblems from now on, unless they are already."""
    limit = planes.value.shape[1] - 1
    for t in range(first, last):
        begin, end = sub.place_start[t], sub.place_start[t + 1]
        length = end - begin
        known = False
        for k in range(1, planes.kept[t] + 1):
            base = begin * limit + (k - 1) * length
            same = True
            for q in range(length):
                if planes.labels[base + q] != x[begin + q]:
                    same = False
                    break
            if same:
                known = True
                planes.idle[t, k] = 0
                break
        if known:
            continue
        slot = _free_slot(sub, planes, t, limit)
        base = begin * limit + (slot - 1) * length
        for q in range(length):
            planes.labels[base + q] = x[begin + q]
        planes.value[t, slot] = factors[t]
        planes.weight[t, slot] = 0.0
        planes.idle[t, slot] = 0
        for l in range(planes.kept[t] + 1):
            planes.product[t, slot, l] = _agreement(sub, planes, t, slot, l, limit)
            planes.product[t, l, slot] = planes.product[t, slot, l]
        if planes.kept[t] == 1 and planes.weight[t, 0] == 0.0:  # the first plane of all
            planes.weight[t, 1] = 1.0
            planes.cost[t] = factors[t]
            for q in range(begin, end):
                planes.average[sub.at[q] + x[q]] = 1.0


@compiled
def add_up(offset, sub, planes):
    """The sums of the averages over copies, from scratch."""
    for s in range(len(planes.total)):
        planes.total[s] = 0.0
    for q in range(len(sub.variable)):
        o = offset[sub.variable[q]]
        for s in range(sub.at[q + 1] - sub.at[q]):
            planes.total[o + s] += planes.average[sub.at[q] + s]


@lean
def move_weights(product, weight, linear, slope, count, c, most):
    """Move weight to the best plane from the worst one that has some; slope is scratch.  Returns the gain."""
    gain = 0.0
    for k in range(count + 1):
        v = linear[k]
        for l in range(count + 1):
            if weight[l] > 0.0:
                v += c * product[k, l] * weight[l]
        slope[k] = v
    for _ in range(most):
        low, high = 0, -1
        for k in range(count + 1):
            if slope[k] < slope[low]:
                low = k
            if weight[k] > 0.0 and (high < 0 or slope[k] > slope[high]):
                high = k
        drop = slope[high] - slope[low]
        if not drop > 1e-12 * (abs(slope[high]) + abs(slope[low])):
            break
        bend = c * (product[low, low] + product[high, high] - 2.0 * product[low, high])
        step = weight[high]
        if bend * step > drop:
            step = drop / bend
        gain += step * (drop - 0.5 * bend * step)
        weight[low] += step
        weight[high] = 0.0 if step == weight[high] else weight[high] - step
        for k in range(count + 1):
            slope[k] += c * step * (product[k, low] - product[k, high])
    return gain


@compiled
def improve(first, last, base, offset, sub, planes, centre, c, most, gains):
    """Solve the blocks of these subproblems of one class (counted from ``base``), the others fixed."""
    limit = planes.value.shape[1] - 1
    linear, slope = np.empty(limit + 1), np.empty(limit + 1)
    at = sub.at
    row = np.empty(1)
    for t in range(base + first, base + last):
        begin, end = sub.place_start[t], sub.place_start[t + 1]
        length = end - begin
        zero = at[begin]
        if at[end] - zero > len(row):
            row = np.empty(at[end] - zero)
        count = planes.kept[t]
        for q in range(begin, end):
            share = c * (1.0 - planes.spread[q])
            o = offset[sub.variable[q]] - at[q]
            for s in range(at[q], at[q + 1]):
                row[s - zero] = centre[s] - share * (planes.total[o + s] - planes.average[s])
        linear[0] = planes.value[t, 0]
        if planes.weight[t, 0] > 0.0:
            for s in range(zero, at[end]):
                linear[0] += row[s - zero] * planes.aggregate[s]
        else:
            linear[0] = 1e300  # there is none
        for k in range(1, count + 1):
            start = begin * limit + (k - 1) * length
            v = planes.value[t, k]
            for q in range(length):
                v += row[at[begin + q] - zero + planes.labels[start + q]]
            linear[k] = v
        gains[t] = move_weights(planes.product[t], planes.weight[t], linear, slope, count, c, most)
        if gains[t] == 0.0:
            continue
        for q in range(begin, end):
            o = offset[sub.variable[q]] - at[q]
            for s in range(at[q], at[q + 1]):
                planes.total[o + s] -= planes.average[s]
                planes.average[s] = planes.weight[t, 0] * planes.aggregate[s]
        cost = planes.weight[t, 0] * planes.value[t, 0]
        for k in range(1, count + 1):
            a = planes.weight[t, k]
            if a > 0.0:
                cost += a * planes.value[t, k]
                start = begin * limit + (k - 1) * length
                for q in range(length):
                    planes.average[at[begin + q] + planes.labels[start + q]] += a
        planes.cost[t] = cost
        for q in range(begin, end):
            o = offset[sub.variable[q]] - at[q]
            for s in range(at[q], at[q + 1]):
                planes.total[o + s] += planes.average[s]


@compiled
def step_from(offset, sub, planes, centre, c, out):
    """out = centre + c (mu - mean); returns the value of the model there, sum_T v_T + <out_T, mu_T>."""
    model = 0.0
    for t in range(len(planes.kept)):
        for k in range(1, planes.kept[t] + 1):
            planes.idle[t, k] = 0 if planes.weight[t, k] > 0.0 else planes.idle[t, k] + 1
        part = planes.cost[t]
        for q in range(sub.place_start[t], sub.place_start[t + 1]):
            share = 1.0 - planes.spread[q]
            o = offset[sub.variable[q]] - sub.at[q]
            for s in range(sub.at[q], sub.at[q + 1]):
                v = centre[s] + c * (planes.average[s] - share * planes.total[o + s])
                out[s] = v
                part += v * planes.average[s]
        model += part
    return model
