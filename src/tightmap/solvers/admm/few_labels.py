"""One tile of the ADMM sweeps on grids when a pixel has at most four labels and the table is Potts.

The equations and the names are those of ``grid_kernels.py``; the layout is [row][label][column], so that the neighbours
to the left and right are plain loads (beyond the ends of a row they meet weights of zero).  Inpainting and segmentation
have two to four labels, and then all vectors of a tile fit into registers: nothing is written to scratch between the
gathering of the neighbours and the new iterate.  Labels that a model does not have are taken as zero, in the projection
as minus huge.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.runtime.compiled import compiled
from tightmap.runtime.simd import LANES, choose_less, less_mask, load, maximum, minimum, splat, store

FEW = 4  # most labels of a pixel
# without reference counts (see runtime/compiled.py), which Numba would not remove across the branches over labels
_inlined = compiled(forceinline=True, fastmath={"contract", "nsz"}, _nrt=False)


@_inlined
def simplex_threshold_of_four(plan, a, b, c, d):
    """Thresholds of eight vectors of four numbers: sorted, the best of the means of the k largest."""
    one = splat(plan.one)
    a, b = maximum(a, b), minimum(a, b)
    c, d = maximum(c, d), minimum(c, d)
    a, c = maximum(a, c), minimum(a, c)
    b, d = maximum(b, d), minimum(b, d)
    b, c = maximum(b, c), minimum(b, c)
    a = a - one
    b = a + b
    c = b + c
    d = c + d
    tau = maximum(a, b * splat(plan.one / plan.two))
    return maximum(tau, maximum(c * splat(plan.one / (plan.one + plan.two)), d * splat(plan.one / plan.two / plan.two)))


@_inlined
def _beside(source, s, to_right, to_left):
    """Weighted sum of the columns to the right and to the left of the tile at s."""
    return to_right * load(source, s + 1) + to_left * load(source, s - 1)


@_inlined
def _around(plan, source, s, wbase):
    """Weighted sum of the neighbours of eight columns, one label."""
    width = plan.tiles * LANES
    row = plan.labels * width
    plane = (plan.height + 2) * width
    w = plan.weight
    z = _beside(source, s, load(w, wbase), load(w, wbase - 1))
    down, up = load(w, wbase + plane), load(w, wbase + plane - width)
    z = z + (down * load(source, s + row) + up * load(source, s - row))
    if plan.diagonal:
        falling, rising = wbase + 2 * plane, wbase + 3 * plane
        below = _beside(source, s + row, load(w, falling), load(w, rising))
        above = _beside(source, s - row, load(w, rising - width + 1), load(w, falling - width - 1))
        z = z + (below + above)
    return z


@_inlined
def _pulls(plan, source, base, wbase):
    """p of the four labels: (V z)(s) = T sum(z) - (T - V(s, s)) z(s)."""
    step = plan.tiles * LANES
    none = splat(plan.one - plan.one)
    a = _around(plan, source, base, wbase)
    b = _around(plan, source, base + step, wbase) if plan.labels > 1 else none
    c = _around(plan, source, base + 2 * step, wbase) if plan.labels > 2 else none
    d = _around(plan, source, base + 3 * step, wbase) if plan.labels > 3 else none
    total = ((a + b) + (c + d)) * splat(plan.top)
    tap = splat(plan.taps[0])
    return total - tap * a, total - tap * b, total - tap * c, total - tap * d


@_inlined
def _target(plan, state, at, scale, p):
    return load(state.x2, at) - ((load(state.y, at) + load(plan.unary, at)) + p) * scale


@_inlined
def few_phase1(plan, state, base, wbase, inverse, eps):
    """First copies of eight columns; returns their squared changes, and the mask of those above eps, which moved."""
    labels, step = plan.labels, plan.tiles * LANES
    none, scale = splat(plan.one - plan.one), splat(inverse)
    a, b, c, d = _pulls(plan, state.x2, base, wbase)
    least = none - splat(plan.huge)
    a = _target(plan, state, base, scale, a)
    b = _target(plan, state, base + step, scale, b) if labels > 1 else least
    c = _target(plan, state, base + 2 * step, scale, c) if labels > 2 else least
    d = _target(plan, state, base + 3 * step, scale, d) if labels > 3 else least
    tau = simplex_threshold_of_four(plan, a, b, c, d)
    a, b, c, d = maximum(a - tau, none), maximum(b - tau, none), maximum(c - tau, none), maximum(d - tau, none)
    x = state.x1
    old_a = load(x, base)
    old_b = load(x, base + step) if labels > 1 else none
    old_c = load(x, base + 2 * step) if labels > 2 else none
    old_d = load(x, base + 3 * step) if labels > 3 else none
    e, f, g, h = a - old_a, b - old_b, c - old_c, d - old_d
    change = (e * e + f * f) + (g * g + h * h)
    moved = less_mask(eps, change)
    if moved != 0:
        store(x, base, choose_less(eps, change, a, old_a))
        if labels > 1:
            store(x, base + step, choose_less(eps, change, b, old_b))
        if labels > 2:
            store(x, base + 2 * step, choose_less(eps, change, c, old_c))
        if labels > 3:
            store(x, base + 3 * step, choose_less(eps, change, d, old_d))
    return change, moved


@_inlined
def _second(state, at, scale, mix, keep, none, p):
    """New second copy of one label and its squared change plus squared distance from the first."""
    x, old = load(state.x1, at), load(state.x2, at)
    v = maximum((mix * x + keep * old) + (load(state.y, at) - p) * scale, none)
    d, e = v - old, x - v
    return v, d * d + e * e


@_inlined
def _take(state, at, mix, keep, speed, eps, change, v):
    old, y = load(state.x2, at), load(state.y, at)
    target = mix * load(state.x1, at) + keep * old
    store(state.y, at, choose_less(eps, change, y + speed * (target - v), y))
    store(state.x2, at, choose_less(eps, change, v, old))


@_inlined
def few_phase2(plan, state, base, wbase, rho, inverse, relax, eps):
    """Second copies and multipliers of eight columns; returns what ``few_phase1`` returns."""
    labels, step = plan.labels, plan.tiles * LANES
    none, speed = splat(plan.one - plan.one), splat(rho)
    scale, mix, keep = splat(inverse), splat(relax), splat(plan.one - relax)
    a, b, c, d = _pulls(plan, state.x1, base, wbase)
    a, change = _second(state, base, scale, mix, keep, none, a)
    if labels > 1:
        b, e = _second(state, base + step, scale, mix, keep, none, b)
        change = change + e
    if labels > 2:
        c, e = _second(state, base + 2 * step, scale, mix, keep, none, c)
        change = change + e
    if labels > 3:
        d, e = _second(state, base + 3 * step, scale, mix, keep, none, d)
        change = change + e
    moved = less_mask(eps, change)
    if moved != 0:
        _take(state, base, mix, keep, speed, eps, change, a)
        if labels > 1:
            _take(state, base + step, mix, keep, speed, eps, change, b)
        if labels > 2:
            _take(state, base + 2 * step, mix, keep, speed, eps, change, c)
        if labels > 3:
            _take(state, base + 3 * step, mix, keep, speed, eps, change, d)
    return change, moved
