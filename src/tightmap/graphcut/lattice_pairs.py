"""The edges of an image made ready for cuts without a list of them: weights go straight to their places on the grid.

Numbers and their order are those of the list (pairwise.py): what is rounded is rounded in the same way, so that both
give the same moves, bit by bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Kind
from tightmap.graph.lattice import FloatArray, IntArray, Lattice, Pixels, weight_images
from tightmap.graphcut.network import Grid


def framed_grid(pixels: Pixels) -> tuple[Grid, IntArray, int]:
    """Network with a frame of dead nodes, the node of every pixel, and how many nodes there are."""
    height, width = pixels.height, pixels.width
    frame = width + 1
    node = ((np.arange(height)[:, None] + 1) * frame + np.arange(width) + 1).ravel()
    strides = np.sort(pixels.down * frame + pixels.right)
    pairs = np.stack([strides, -strides], axis=1).ravel().astype(np.int64)
    return Grid(pairs, len(pairs)), node, (height + 2) * frame + 2


def largest_around(lattice: Lattice) -> float:
    """Largest sum over the edges of one pixel of twice their largest cost."""
    g = lattice.pixels
    most = 1.0 if lattice.kind == Kind.POTTS else lattice.limit
    costs = 2.0 * most * np.abs(weight_images(g))
    around = np.zeros((g.height, g.width))
    for k, sign in zip(g.near.tolist(), g.sign.tolist(), strict=True):
        dr, dc = int(g.down[k]), int(g.right[k])
        if sign > 0:  # at their first ends all edges are
            around += costs[k]
        else:
            first = costs[k, : g.height - dr, max(0, -dc) : g.width - max(0, dc)]
            around[dr:, max(0, dc) : g.width - max(0, -dc)] += first
    return float(around.max())


def by_edge_number(
    lattice: Lattice, node: IntArray, nodes: int, weight: FloatArray, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.generic], npt.NDArray[np.int32]]:
    """Kinds, weights and labels of the heads by edge number of the framed grid; ``weight`` as that of the pixels."""
    g = lattice.pixels
    images = weight_images(g._replace(weight=weight))
    rows = node.reshape(g.height, g.width)
    half = len(images)
    kind = np.full((nodes, half), int(Kind.POTTS), np.uint8)
    weights, heads = np.zeros((nodes, half), dtype), np.zeros((nodes, half), np.int32)
    for place, k in enumerate(np.argsort(g.down * g.width + g.right).tolist()):
        dr, dc = int(g.down[k]), int(g.right[k])
        some = slice(0, g.height - dr), slice(max(0, -dc), g.width - max(0, dc))
        at = rows[some]
        kind[at, place] = lattice.kind
        weights[at, place] = images[k][some]
        heads[at, place] = g.labels
    return kind.ravel(), weights.ravel(), heads.ravel()
