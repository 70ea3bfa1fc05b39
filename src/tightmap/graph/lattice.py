"""Lattice: an image model as it is, without a list of its edges.

    E(x) = sum_p unary_p(x_p) + sum over steps k and pixels p of  w_k(p) profile(|x_p - x_{p + step k}|)

where p + step k is inside of the image.  Weights are one number, or one for every edge, step by step (in the order in
which the user listed the steps), and for each of them the first ends in raster order,

    edge (r, c) -> (r + dr, c + dc)   is number   first_k + r (W - |dc|) + c - max(0, -dc).

A Graph of such a model writes its arrays out only when somebody asks for them, which takes more than 100 bytes per
pixel.  Energies, coordinate descent and the engines of regular grids need nothing but this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.pixel_costs import both

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Pixels(NamedTuple):
    """What kernels see of a lattice: one type for all of them."""

    height: int
    width: int
    labels: int
    potts: bool
    unary: FloatArray  # [row][column][label], or nothing where the next one has the costs (pixel_costs.py)
    single: npt.NDArray[np.float32]
    down: IntArray  # (K,) rows of every step
    right: IntArray  # (K,) columns
    first: IntArray  # (K,) number of its first edge
    listed: int  # 1 where every edge has a weight of its own, 0 where there is one for all
    weight: FloatArray
    profile: FloatArray  # (labels,) cost by difference of labels
    # both ends of every step, by the number of the neighbour: in this order costs are added, as the edge list would
    near: IntArray  # (2 K,) step
    sign: IntArray  # (2 K,) +1: the neighbour is the second end, -1: the first

    @property
    def costs(self) -> npt.NDArray[Any]:
        """The unaries, in whichever precision they are."""
        return self.single if len(self.single) else self.unary


@dataclass(frozen=True, eq=False)
class Lattice:
    """A grid of pixels that all have the same labels, with one shared cost of differences."""

    pixels: Pixels
    kind: int
    limit: float  # of the difference, for kinds that have one
    edges: int
    write_out: Callable[[], Any]  # the arrays of the Graph
    avoided: bool = True  # the list is so long that methods do without the moves that need it

    @property
    def n(self) -> int:
        return self.pixels.height * self.pixels.width


def make_pixels(
    shape: tuple[int, int],
    steps: list[tuple[int, int]],
    unary: npt.NDArray[Any],
    weight: FloatArray,
    profile: FloatArray,
    potts: bool,
) -> Pixels:
    """``weight`` has one entry, or one for every edge."""
    height, width = shape
    counts = [(height - dr) * (width - abs(dc)) for dr, dc in steps]
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    ends = [(sign * (dr * width + dc), k, sign) for k, (dr, dc) in enumerate(steps) for sign in (-1, 1)]
    ends.sort()
    return Pixels(
        height,
        width,
        len(profile),
        potts,
        *both(unary),
        np.array([dr for dr, _ in steps], dtype=np.int64),
        np.array([dc for _, dc in steps], dtype=np.int64),
        first,
        0 if len(weight) == 1 and sum(counts) > 1 else 1,
        weight,
        profile,
        np.array([k for _, k, _ in ends], dtype=np.int64),
        np.array([sign for _, _, sign in ends], dtype=np.int64),
    )


def weight_images(pixels: Pixels) -> FloatArray:
    """(K, height, width) weights at the first end of every edge, zero where there is none."""
    height, width = pixels.height, pixels.width
    steps = list(zip(pixels.down.tolist(), pixels.right.tolist(), strict=True))
    if not pixels.listed:
        return equal_weights(height, width, steps, float(pixels.weight[0]))
    images = np.zeros((len(steps), height, width))
    for k, (dr, dc) in enumerate(steps):
        rows, columns = height - dr, width - abs(dc)
        begin = int(pixels.first[k])
        part = images[k, :rows, max(0, -dc) : max(0, -dc) + columns]
        part[:] = pixels.weight[begin : begin + rows * columns].reshape(rows, columns)
    return images


def equal_weights(height: int, width: int, steps: list[tuple[int, int]], weight: float) -> FloatArray:
    """The same where all edges have one weight."""
    images = np.zeros((len(steps), height, width))
    for image, (dr, dc) in zip(images, steps, strict=True):
        image[: height - dr, max(0, -dc) : width - max(0, dc)] = weight
    return images
