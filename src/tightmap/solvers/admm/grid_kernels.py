"""The updates of ADMM on eight pixels of a grid at once.

The symmetrised two-copy ADMM of a pairwise model (updates.py with D = 2, paper eq. 36 and 38) does, per iteration,

    phase 1   x1_i = simplex( x2_i - (y_i + u_i + p_i(x2)) / rho )
    phase 2   xh = a x1_i + (1 - a) x2_i,   x2_i' = max(0, xh + (y_i - p_i(x1)) / rho),   y_i += rho (xh - x2_i')

with p_i(x) = 1/2 sum_j w_ij V x_j and the over-relaxation a.  With one shared table V(s, t) = min(g(|s - t|), T) the
neighbours are summed first and V is applied once, as a short filter: V z = T sum(z) - sum_k (T - g(|k|)) z(. + k).

The projection on the simplex is Newton's method on its dual, started from the support of the last iterate.

A phase first writes the new vectors of a tile to scratch and says by how much each would move; those that move by more
than eps (squared) are then accepted.  Everything is in the layout of grid_layout.py.  ``base`` is where a tile begins
in the iterates, ``wbase`` where it begins in the weights.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import (
    LANES,
    choose_less,
    get,
    less_mask,
    load,
    maximum,
    shift_down,
    shift_up,
    splat,
    store,
)

FUSE = {"contract", "nsz"}


@compiled(forceinline=True, fastmath=FUSE)
def _gather(plan, source, base, wbase, g):
    """Weighted sums of the neighbours of eight columns, to g (with a margin of empty labels); returns T * their sum."""
    size = plan.labels * LANES  # of a tile
    row = plan.tiles * size
    width = plan.tiles * LANES
    plane = (plan.height + 2) * width
    out = len(plan.taps) * LANES
    end, next_ = LANES - 1 - size, size  # last lane of the tile to the left, first lane of the tile to the right
    total = splat(plan.one - plan.one)
    w = plan.weight
    at = wbase
    right, left = load(w, at), load(w, at - 1)
    at += plane
    down, up = load(w, at), load(w, at - width)
    if not plan.diagonal:
        for s in range(base, base + size, LANES):
            v = load(source, s)
            z = right * shift_down(v, get(source, s + next_)) + left * shift_up(v, get(source, s + end))
            z = z + (down * load(source, s + row) + up * load(source, s - row))
            total = total + z
            store(g, out, z)
            out += LANES
        return total * splat(plan.top)
    at += plane
    down_right, up_left = load(w, at), load(w, at - width - 1)
    at += plane
    down_left, up_right = load(w, at), load(w, at - width + 1)
    for s in range(base, base + size, LANES):
        v = load(source, s)
        z = right * shift_down(v, get(source, s + next_)) + left * shift_up(v, get(source, s + end))
        v = load(source, s + row)
        z = z + down * v
        z = z + down_right * shift_down(v, get(source, s + row + next_))
        z = z + down_left * shift_up(v, get(source, s + row + end))
        v = load(source, s - row)
        y = up * v
        y = y + up_right * shift_down(v, get(source, s - row + next_))
        y = y + up_left * shift_up(v, get(source, s - row + end))
        z = z + y
        total = total + z
        store(g, out, z)
        out += LANES
    return total * splat(plan.top)


@compiled(_nrt=False, forceinline=True, fastmath=FUSE)
def _filtered(plan, g, at, total):
    """(V z)(s) of eight columns, where z(s) is at g[at]."""
    v = total - splat(plan.taps[0]) * load(g, at)
    for k in range(1, len(plan.taps)):
        v = v - splat(plan.taps[k]) * (load(g, at - k * LANES) + load(g, at + k * LANES))
    return v


@compiled(_nrt=False, forceinline=True, fastmath=FUSE)
def _newton(plan, state, base, p):
    """Thresholds of eight vectors by Newton's method, from the best of three lower bounds."""
    labels = plan.labels
    one = splat(plan.one)
    zero = one - one
    mean, mass, count = zero - one, zero - one, zero
    peak = load(p, 0)
    for s in range(0, labels * LANES, LANES):  # mean, maximum, support of the last iterate
        c = load(p, s)
        mean = mean + c
        peak = maximum(peak, c)
        old = load(state.x1, base + s)
        mass = mass + choose_less(zero, old, c, zero)
        count = count + choose_less(zero, old, one, zero)
    tau = maximum(mean * splat(plan.share), peak - one)
    tau = maximum(tau, choose_less(zero, count, mass / maximum(count, one), tau))
    if labels % 2:
        store(p, labels * LANES, zero - splat(plan.huge))
    for _ in range(labels + 1):  # Newton from below: the support only shrinks, and it is exact when tau stays
        mass, count = zero - one, zero
        mass_, count_ = zero, zero
        for s in range(0, labels, 2):  # two sums, because one would wait for itself
            c, d = load(p, s * LANES), load(p, s * LANES + LANES)
            mass, mass_ = mass + choose_less(tau, c, c, zero), mass_ + choose_less(tau, d, d, zero)
            count, count_ = count + choose_less(tau, c, one, zero), count_ + choose_less(tau, d, one, zero)
        mass, count = mass + mass_, count + count_
        old = tau
        tau = choose_less(zero, count, maximum(tau, mass / maximum(count, one)), tau)
        if less_mask(old, tau) == 0:
            break
    return tau


@compiled(_nrt=False, forceinline=True, fastmath=FUSE)
def phase1(plan, state, base, wbase, inverse, g, p):
    """Projected vectors of eight columns, to p; returns their squared distances from x1."""
    labels = plan.labels
    one = splat(plan.one)
    zero = one - one
    scale = splat(inverse)
    total = _gather(plan, state.x2, base, wbase, g)
    line, at = base, len(plan.taps) * LANES
    for s in range(0, labels * LANES, LANES):
        c = (load(state.y, line + s) + load(plan.unary, line + s)) + _filtered(plan, g, at + s, total)
        store(p, s, load(state.x2, line + s) - c * scale)
    tau = _newton(plan, state, base, p)
    change = zero
    line = base
    for s in range(labels):
        c = maximum(load(p, s * LANES) - tau, zero)
        d = c - load(state.x1, line)
        change = change + d * d
        store(p, s * LANES, c)
        line += LANES
    return change


@compiled(_nrt=False, forceinline=True, fastmath=FUSE)
def phase2(plan, state, base, wbase, inverse, relax, g, p):
    """Second copies of eight columns, to p; returns their squared changes plus squared distances from x1."""
    zero = splat(plan.one - plan.one)
    scale, mix, keep = splat(inverse), splat(relax), splat(plan.one - relax)
    total = _gather(plan, state.x1, base, wbase, g)
    change = zero
    line, at = base, len(plan.taps) * LANES
    for s in range(plan.labels):
        x, old = load(state.x1, line), load(state.x2, line)
        v = (mix * x + keep * old) + (load(state.y, line) - _filtered(plan, g, at, total)) * scale
        v = maximum(v, zero)
        d, e = v - old, x - v
        change = change + (d * d + e * e)
        store(p, s * LANES, v)
        line += LANES
        at += LANES
    return change


@compiled(_nrt=False, forceinline=True, fastmath=FUSE)
def accept1(plan, state, base, eps, change, p):
    """x1 takes the columns that moved by more than eps."""
    for s in range(plan.labels):
        line = base + s * LANES
        store(state.x1, line, choose_less(eps, change, load(p, s * LANES), load(state.x1, line)))


@compiled(_nrt=False, forceinline=True, fastmath=FUSE)
def accept2(plan, state, base, rho, relax, eps, change, p):
    """x2 and the multipliers of the columns that moved by more than eps."""
    mix, keep, step = splat(relax), splat(plan.one - relax), splat(rho)
    for s in range(plan.labels):
        line = base + s * LANES
        old, v, y = load(state.x2, line), load(p, s * LANES), load(state.y, line)
        target = mix * load(state.x1, line) + keep * old
        store(state.y, line, choose_less(eps, change, y + step * (target - v), y))
        store(state.x2, line, choose_less(eps, change, v, old))
