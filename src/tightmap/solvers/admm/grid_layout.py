"""How a grid model and its iterates lie in memory for ADMM: eight columns side by side.

Eight columns of a row are a tile, and a tile is contiguous: [row][tile][label][lane].  So every operation works on
eight pixels at once, whatever the number of labels is.  Models of few labels with a Potts table have
[row][label][column] instead (few_labels.py).  Rows have a zero border, edges that do not exist have weight zero,
columns beyond the width are nodes without costs that never move.

The table is V(s, t) = min(g(|s - t|), T), kept as the taps T - g(0), T - g(1), .. of the filter that applies it
(grid_kernels.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.stencil import Stencil
from tightmap.runtime.simd import LANES
from tightmap.solvers.admm.few_labels import FEW

_DIRECTIONS = [(0, 1), (1, 0), (1, 1), (1, -1)]  # edges are kept at their first end: right, down, and the diagonals


class GridPlan(NamedTuple):
    """Everything about the model that a sweep reads.  Flat arrays of one float type."""

    height: int
    width: int
    tiles: int  # per row: the width divided by LANES, rounded up
    labels: int
    few: bool  # the kernels and the layout of few_labels.py
    diagonal: bool  # the eight neighbours of a pixel, not only four
    weight: npt.NDArray[np.floating]  # (2 or 4, height + 2, width) half weights in the order of _DIRECTIONS
    unary: npt.NDArray[np.floating]  # (height + 2, tiles, labels, LANES) between two margins; labels, tiles when few
    one: np.floating  # 1, 2 and 1 / labels in the float type of the run (mixing in integers would widen to float64)
    two: np.floating
    share: np.floating
    huge: np.floating  # larger than every entry
    top: np.floating  # T, the largest cost of the table
    taps: npt.NDArray[np.floating]  # (K,) T - g(0), T - g(1), ... > 0


class GridState(NamedTuple):
    """Iterates and activity flags of one run (vectors in the layout of ``GridPlan.unary``)."""

    x1: npt.NDArray[np.floating]
    x2: npt.NDArray[np.floating]
    y: npt.NDArray[np.floating]
    dirty1: npt.NDArray[np.uint8]  # (height + 2, tiles + 2)
    dirty2: npt.NDArray[np.uint8]
    residual: npt.NDArray[np.float64]  # (2, height)


def fits(stencil: Stencil) -> bool:
    """Whether these sweeps can run: neighbours at most one pixel away, and a table that rises and levels off soon."""
    return stencil.radius == 1 and 1 <= len(_taps(stencil)) <= 8


def _taps(stencil: Stencil) -> npt.NDArray[np.float64]:
    top = stencil.profile.max()
    return top - stencil.profile[: int(np.argmax(stencil.profile >= top))]


def _room(height: int, tiles: int, labels: int, dtype: npt.DTypeLike) -> npt.NDArray[np.floating]:
    """Zeros for the vectors of all pixels and the two border rows.

    Before the first and after the last tile there is one more: diagonal neighbours of the corners are read there, with
    weight zero, and must be numbers.
    """
    return np.zeros(((height + 2) * tiles + 2) * labels * LANES, dtype)


def grid_plan(stencil: Stencil, dtype: type) -> GridPlan:
    """Plan of a stencil; unaries are zero until they are written."""
    height, width, labels = stencil.height, stencil.width, stencil.labels
    tiles = -(-width // LANES)
    diagonal = bool((stencil.displacements != 0).all(axis=1).any())
    weight: npt.NDArray[np.floating] = np.zeros((4 if diagonal else 2, height + 2, tiles * LANES), dtype)
    for k, (down, right) in enumerate(stencil.displacements.tolist()):
        plane = weight[_DIRECTIONS.index((down, right)), 1:-1, :width]
        if stencil.equal is None:
            plane[:] = stencil.weights[k] / 2
        else:
            plane[: height - down, max(0, -right) : width - max(0, right)] = stencil.equal / 2
    taps: npt.NDArray[np.floating] = _taps(stencil).astype(dtype)
    return GridPlan(
        height, width, tiles, labels, labels <= FEW and len(taps) == 1, diagonal, weight.ravel(),
        _room(height, tiles, labels, dtype), dtype(1), dtype(2), dtype(1 / labels), dtype(1e30),
        dtype(stencil.profile.max()), taps,
    )  # fmt: skip


def grid_ranges(plan: GridPlan, first: int, last: int) -> npt.NDArray[np.float64]:
    """Sums of the ranges of the factors around every pixel of some rows."""
    last = min(last, plan.height)
    degree = np.zeros((last - first, plan.width))
    padded = plan.tiles * LANES
    for plane, (down, right) in zip(plan.weight.reshape(-1, plan.height + 2, padded), _DIRECTIONS, strict=False):
        degree += np.abs(plane[1 + first : 1 + last, : plan.width])
        other = np.abs(plane[1 + first - down : 1 + last - down, : plan.width])  # edges whose second end is here
        degree[:, max(right, 0) : plan.width + min(right, 0)] += other[:, max(-right, 0) : plan.width + min(-right, 0)]
    return 2.0 * float(plan.top) * degree.reshape(-1)


def grid_state(plan: GridPlan) -> GridState:
    """Room for one run; fill it with ``grid_place``."""
    flags = (plan.height + 2, plan.tiles + 2)
    x1, x2, y = (_room(plan.height, plan.tiles, plan.labels, plan.unary.dtype) for _ in range(3))
    return GridState(
        x1, x2, y,
        np.zeros(flags, np.uint8), np.zeros(flags, np.uint8), np.zeros((2, plan.height)),
    )  # fmt: skip


def _columns(plan: GridPlan, flat: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """The rows of the image as [row][tile][lane][label]: a view."""
    flat = flat[plan.labels * LANES : -plan.labels * LANES]
    if plan.few:
        return flat.reshape(plan.height + 2, plan.labels, plan.tiles, LANES)[1:-1].transpose(0, 2, 3, 1)
    return flat.reshape(plan.height + 2, plan.tiles, plan.labels, LANES)[1:-1].transpose(0, 1, 3, 2)


def grid_write(plan: GridPlan, flat: npt.NDArray[np.floating], vectors: npt.NDArray[np.floating], first: int) -> None:
    """Put the vectors, shape (pixels, labels), of some rows of the image in place, zeros beyond its width."""
    rows = _columns(plan, flat)[first : first + len(vectors) // plan.width]
    padded = np.zeros((len(rows), plan.tiles * LANES, plan.labels), flat.dtype)
    padded[:, : plan.width] = vectors.reshape(len(rows), plan.width, plan.labels)
    rows[:] = padded.reshape(len(rows), plan.tiles, LANES, plan.labels)


def grid_read(
    plan: GridPlan, flat: npt.NDArray[np.floating], first: int = 0, last: int | None = None
) -> npt.NDArray[np.floating]:
    """Vectors of the rows first..last of the image, shape (pixels, labels)."""
    rows = _columns(plan, flat)[first:last]
    full = rows.reshape(len(rows), plan.tiles * LANES, plan.labels)
    return np.ascontiguousarray(full[:, : plan.width]).reshape(-1, plan.labels)


def grid_place(plan: GridPlan, flat: npt.NDArray[np.floating], x: npt.NDArray[np.floating], first: int) -> None:
    """Put rows of a copy in place; nodes outside the image are one-hot and without costs, so that they never move."""
    grid_write(plan, flat, x, first)
    extra = plan.tiles * LANES - plan.width
    if extra:
        _columns(plan, flat)[first : first + len(x) // plan.width, -1, LANES - extra :, 0] = 1
