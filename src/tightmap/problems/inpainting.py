"""Colour inpainting: the triple point models of the OpenGM benchmark (inpainting-n4, inpainting-n8), from a formula.

A ring around an empty disc is cut into three sectors of 120 degrees, one per colour; the disc has no data at all and
everything outside the ring is background, a fourth label.  The prior charges the length of the boundaries between
labels, so the best filling of the disc is the one with the shortest boundaries: three straight lines that meet in the
middle.  ``inverse`` swaps the costs of the sectors: every sector forbids its own colour softly instead of asking for
it, which makes the three colours nearly symmetric and the model hard.

Boundary length is counted by the Cauchy-Crofton weights of the neighbourhood system: pi/4 per cut edge for four
neighbours; pi/8 for the axis-parallel and pi/(8 sqrt 2) for the diagonal edges for eight.
"""

from __future__ import annotations

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import IntArray
from tightmap.model.model import Model

LABELS = 4  # three colours and the background
BACKGROUND = 3
DISC, OUTSIDE = 3, 4  # region codes beside the sectors 0, 1, 2
FORBIDDEN = 100.0


def inpainting_regions(size: int = 120) -> IntArray:
    """(size, size) region of every pixel: 0, 1, 2 the ring sectors (left, top, right), 3 the disc, 4 the outside."""
    if size < 4:
        raise ModelError(f"inpainting: size must be at least 4, got {size}")
    middle = (size - 1) / 2
    y, x = np.mgrid[:size, :size] - middle
    radius = np.hypot(y, x) / middle
    # the sectors meet at 210 degrees, 330 degrees and straight down; y points down
    top = -y * np.sqrt(3.0) > np.abs(x)
    regions = np.where(top, 1, np.where(x < 0, 0, 2))
    regions[radius < 0.5] = DISC
    regions[radius >= 0.9] = OUTSIDE
    return regions.astype(np.int64)


def inpainting(size: int = 120, neighbours: int = 4, inverse: bool = False) -> Model:
    """The triple point model on a size x size grid with 4 labels.

    Parameters
    ----------
    size : pixels per side; 120 is the benchmark's, other sizes scale the geometry and keep the weights per edge.
    neighbours : 4 (Potts weight pi/4) or 8 (pi/8 and pi/(8 sqrt 2)).
    inverse : each sector charges its own colour 1 and the other two 0, instead of 0 and 1.
    """
    regions = inpainting_regions(size).ravel()
    own, others = (1.0, 0.0) if inverse else (0.0, 1.0)
    costs = np.zeros((5, LABELS))
    costs[:3, :3] = others
    costs[np.arange(3), np.arange(3)] = own
    costs[:3, BACKGROUND] = FORBIDDEN
    costs[OUTSIDE] = FORBIDDEN
    costs[OUTSIDE, BACKGROUND] = 0.0
    model = Model.grid(size, size, LABELS)
    model.add_unaries(costs[regions])
    edges = model.edges(neighbours)
    if neighbours == 4:
        model.add_potts(edges, np.pi / 4)
    else:
        straight = 2 * size * (size - 1)  # Model.edges lists right and down before the diagonals
        weights = np.full(len(edges), np.pi / (8 * np.sqrt(2.0)))
        weights[:straight] = np.pi / 8
        model.add_potts(edges, weights)
    return model
