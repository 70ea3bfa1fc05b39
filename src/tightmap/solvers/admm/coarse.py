"""Coarse grids: the same model restricted to labellings that are constant on squares of pixels.

The restricted problem is again a grid with the same table: unaries of a square add up, and so do the weights of the
edges between two squares (an edge inside a square costs table(0), which is nothing).  Its solutions are labellings of
the fine grid with exactly the same energy, found with a fraction of the work, and the large regions that a fine run has
trouble to agree on are a few squares here.  Several factors and offsets give different proposals to fuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.graph.stencil import Stencil

_STEPS = ((0, 1), (1, 0), (1, 1), (1, -1))


@dataclass(frozen=True, eq=False)
class Coarse:
    stencil: Stencil
    unary: npt.NDArray[np.float64]  # (squares, labels)
    square: npt.NDArray[np.int64]  # (pixels,) the square of every pixel


def coarsen(stencil: Stencil, unary: npt.NDArray[Any], factor: int, offset: tuple[int, int]) -> Coarse:
    """Squares of factor x factor pixels, the first ones cut by the offset.  The stencil has radius one."""
    height, width, labels = stencil.height, stencil.width, stencil.labels
    top, left = offset
    rows, columns = -(-(height + top) // factor), -(-(width + left) // factor)
    down_to, right_to = (np.arange(height) + top) // factor, (np.arange(width) + left) // factor
    square = (down_to[:, None] * columns + right_to).reshape(-1)
    fine = unary.reshape(height, width, labels)
    cuts = np.maximum(np.arange(columns) * factor - left, 0)
    small = np.empty((rows, columns, labels))
    for row in range(rows):  # one at a time: the sums of all would be half as large as the unaries
        together = fine[max(row * factor - top, 0) : (row + 1) * factor - top].sum(axis=0, dtype=np.float64)
        np.add.reduceat(together, cuts, axis=0, out=small[row])
    planes = {step: np.zeros(rows * columns) for step in _STEPS}
    for (down, right), weight in zip(stencil.displacements, stencil.weights, strict=True):
        first = np.flatnonzero(weight.reshape(-1))
        a, b = square[first], square[first + down * width + right]
        apart = a != b
        first, a, b = first[apart], a[apart], b[apart]
        a, b = np.minimum(a, b), np.maximum(a, b)
        for step, plane in planes.items():
            here = (b // columns - a // columns == step[0]) & (b % columns - a % columns == step[1])
            plane += np.bincount(a[here], weight.reshape(-1)[first[here]], minlength=rows * columns)
    used = sorted((s for s in _STEPS if planes[s].any()), key=lambda s: s[0] * columns + s[1])
    weights = np.stack([planes[s].reshape(rows, columns) for s in used])
    shape = Stencil(rows, columns, labels, stencil.kind, np.array(used, np.int64), weights, stencil.profile)
    return Coarse(shape, small.reshape(rows * columns, labels), square)
