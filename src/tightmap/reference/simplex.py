"""Projection on the simplices, by sorting."""

from __future__ import annotations

import numpy as np

from tightmap.reference.model import Labels
from tightmap.reference.tensor import Vector


def project(v: Vector, offset: Labels) -> Vector:
    """The nearest point whose parts x[offset[i] : offset[i + 1]] are non-negative and add up to 1, each.

    The part of i is max(v_i - tau, 0), with tau such that the entries above it, less tau, add up to 1.  With the
    entries in descending order u_1, u_2, .. these are the first k for the largest k with
    u_k > (u_1 + .. + u_k - 1) / k, and tau is that mean.
    """
    sizes = np.diff(offset)
    count = np.arange(1, int(sizes.max(initial=0)) + 1)
    padded = np.full((len(sizes), len(count)), -np.inf)  # parts may be shorter than the longest: never among the k
    padded[count <= sizes[:, None]] = v
    u = -np.sort(-padded, axis=1)
    tau = (np.cumsum(u, axis=1) - 1.0) / count
    k = (u > tau).sum(axis=1)
    out: Vector = np.maximum(v - np.repeat(tau[np.arange(len(k)), k - 1], sizes), 0.0)
    return out
