"""The exact line search of the gradient methods: the best step along a segment, (17) and (87)-(95)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Polynomial

from tightmap.reference.tensor import Vector


def line_search(energy: Callable[[Vector], float], degree: int, x: Vector, r: Vector) -> float:
    """The alpha in [0, 1] with the smallest p(alpha) = E(x + alpha r), a polynomial of this degree.

    Its coefficients come from degree + 1 values.  The supplement takes them at random places; at Chebyshev's nodes the
    equations are well conditioned.  For degrees above 3 it then tries every alpha on a grid; the roots of p' are exact.
    """
    nodes = 0.5 - 0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    p = Polynomial.fit(nodes, [energy(x + a * r) for a in nodes], degree, domain=[0.0, 1.0])
    slope = p.deriv()
    roots = slope.trim(1e-10 * np.abs(slope.coef).max()).roots()  # leading coefficients that are rounding spoil them
    flat = roots.real[np.abs(roots.imag) < 1e-9]
    candidates = np.concatenate(([0.0, 1.0], flat[(flat > 0.0) & (flat < 1.0)]))
    return float(candidates[np.argmin(p(candidates))])
