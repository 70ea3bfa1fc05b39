"""Exact line search for multilinear energies of any order (paper eq. 17, supplement B.1).

Along a segment, p(alpha) = E(x + alpha r) - E(x) is a polynomial of degree at most D, the order of the model:

  D = 2   p = slope alpha + curvature alpha^2, closed form;
  D = 3   slope, p(1/2) and p(1) give the three coefficients, and the derivative is a quadratic: closed form;
  D >= 4  values at the Chebyshev points of [0, 1] give the interpolant, which is p itself; the stationary points are
          the eigenvalues of the companion matrix of its derivative.  (Random points, as in the supplement, make an
          ill-conditioned system, and its search on a grid of 1e-4 is not exact.)

Every rule returns alpha in [0, 1] together with p(alpha); 0 means that the segment does not descend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev

Vector = npt.NDArray[np.float64]

ARMIJO_SLOPE = 1e-4  # sufficient decrease, a fraction of what the slope promises
ARMIJO_HALVINGS = 40


@dataclass(frozen=True)
class Segment:
    """The energy along a segment: ``value(alpha)`` and the candidates for its minimum over [0, 1]."""

    slope: float
    value: Callable[[float], float]
    candidates: Sequence[float]

    def minimise(self) -> tuple[float, float]:
        """(alpha, p(alpha)) of the smallest value, (0, 0) when nothing is below the start."""
        best, low = 0.0, 0.0
        for alpha in self.candidates:
            p = self.value(alpha)
            if p < low:
                best, low = alpha, p
        return best, low

    def armijo(self) -> tuple[float, float]:
        """The first of 1, 1/2, 1/4, ... with a sufficient decrease."""
        alpha = 1.0
        for _ in range(ARMIJO_HALVINGS):
            p = self.value(alpha)
            if p <= ARMIJO_SLOPE * alpha * self.slope and p < 0.0:
                return alpha, p
            alpha *= 0.5
        return 0.0, 0.0

    def nonmonotone(self, allowance: float) -> tuple[float, float]:
        """The full step when it stays within ``allowance`` above the start, the exact one otherwise.

        Spectral steps are fast because they may rise for a while; the allowance is the largest of the last few values
        minus the current one (Grippo, Lampariello and Lucidi; Birgin, Martinez and Raydan).
        """
        p = self.value(1.0)
        return (1.0, p) if p <= allowance + ARMIJO_SLOPE * self.slope else self.minimise()


def sample_points(order: int) -> Vector:
    """Where p has to be known, besides p(0) = 0 and the slope there."""
    if order <= 3:
        return np.array([0.5, 1.0])
    return 0.5 - 0.5 * np.cos(np.pi * np.arange(1, order + 1) / order)


def quadratic(slope: float, curvature: float) -> Segment:
    """p = slope alpha + curvature alpha^2."""
    inner = [1.0]
    if curvature > 0.0:
        inner = [min(1.0, max(0.0, -slope / (2.0 * curvature)))]
    return Segment(slope, lambda a: a * (slope + a * curvature), inner)


def cubic(slope: float, half: float, full: float) -> Segment:
    """p of degree three from its slope at 0 and its values at 1/2 and 1."""
    c2 = 8.0 * half - full - 3.0 * slope
    c3 = full - slope - c2
    inner = [a for a in _quadratic_roots(3.0 * c3, 2.0 * c2, slope) if 0.0 < a < 1.0]
    return Segment(slope, lambda a: a * (slope + a * (c2 + a * c3)), [*inner, 1.0])


def _quadratic_roots(a: float, b: float, c: float) -> list[float]:
    """Real roots of a t^2 + b t + c, without cancellation."""
    discriminant = b * b - 4.0 * a * c
    if discriminant < 0.0:
        return []
    q = -0.5 * (b + math.copysign(math.sqrt(discriminant), b))
    return ([q / a] if a != 0.0 else []) + ([c / q] if q != 0.0 else [])


def interpolated(slope: float, values: Vector) -> Segment:
    """p from its values at ``sample_points`` of its degree."""
    degree = len(values)
    points = np.concatenate(([0.0], sample_points(degree)))
    series = np.linalg.solve(chebyshev.chebvander(2.0 * points - 1.0, degree), np.concatenate(([0.0], values)))
    size = float(np.abs(series).max())
    derivative = chebyshev.chebder(series)
    # coefficients that are rounding errors would send the eigenvalues of the companion matrix astray
    derivative = chebyshev.chebtrim(derivative, tol=1e-14 * degree * degree * size)
    inner: list[float] = []
    if len(derivative) > 1:
        roots = chebyshev.chebroots(derivative)
        real = 0.5 + 0.5 * roots.real[np.abs(roots.imag) < 1e-6]
        inner = [float(a) for a in real if 0.0 < a < 1.0]
    start = float(chebyshev.chebval(-1.0, series))
    return Segment(slope, lambda a: float(chebyshev.chebval(2.0 * a - 1.0, series)) - start, [*inner, 1.0])


def from_samples(order: int, slope: float, values: Vector) -> Segment:
    """p from its slope at 0 and its values at ``sample_points(order)``, for an order of three or more."""
    return cubic(slope, float(values[0]), float(values[1])) if order <= 3 else interpolated(slope, values)
