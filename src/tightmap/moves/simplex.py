"""Projection of a vector on the probability simplex {v >= 0, sum v = 1}.

The projection of u is max(u - t, 0) for the one t with sum_s max(u_s - t, 0) = 1.  The left side is convex, decreasing
and piecewise linear in t, so Newton's method from a point on the left of the root climbs to it monotonically and is
exact after as many steps as there are pieces in between, in practice two to five.  No sorting, no scratch space.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.runtime.compiled import lean


@lean
def simplex_threshold(u, length):
    """The t for which max(u - t, 0) is the projection of u[:length]."""
    top = u[0]
    for s in range(1, length):
        top = u[s] if u[s] > top else top
    t = top - 1.0  # the largest entry alone has mass 1 here, all entries together at least as much
    while True:
        mass = 0.0
        count = 0
        for s in range(length):
            if u[s] > t:
                mass += u[s] - top
                count += 1
        root = top + (mass - 1.0) / count if count else t
        if not root > t:  # climbs strictly, so it ends, also when rounding hides the last step
            return t
        t = root
