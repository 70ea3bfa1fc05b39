"""What a label can cost at most, seen from one variable.

The range of a factor is its largest cost minus its smallest one.  A label whose unary is above the smallest unary of
its variable by more than the sum of the ranges of the factors around it never pays, whatever the neighbours do.
"""

from __future__ import annotations

import numpy as np

from tightmap.factors.kernels import incident_ranges
from tightmap.graph.graph import Arrays
from tightmap.moves.context import Vector


def capped(g: Arrays, ranges: Vector) -> Vector:
    """Unaries at most their row's minimum plus the incident ranges."""
    low = np.minimum.reduceat(g.unary, g.offset[:-1])
    return np.minimum(g.unary, np.repeat(low + ranges, g.cards))


def without_extremes(g: Arrays) -> Arrays:
    """The same model with labels priced out whose unary is in the upper half of a wide range.

    With hard constraints such a label is often a way to opt out ("no match"); iterates that hide there freeze early.
    """
    low = np.repeat(np.minimum.reduceat(g.unary, g.offset[:-1]), g.cards)
    gap = g.unary - low
    wide = np.repeat(np.maximum.reduceat(gap, g.offset[:-1]), g.cards)
    ranges = np.repeat(incident_ranges(g), g.cards)
    return g._replace(unary=np.where((gap > 0.5 * wide) & (wide > 0.01 * ranges), low + ranges, g.unary))
