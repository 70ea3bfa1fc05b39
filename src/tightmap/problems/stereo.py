"""Stereo matching on the pixel grid: the models of the Middlebury MRF study (mrf-stereo in the OpenGM benchmark).

Label d of pixel (y, x) of the left image says that the same point is at (y, x - d) in the right image.  The energy is

    E(d) = sum_p D(p, d_p) + weight * sum_{pq} w_pq * min(|d_p - d_q|^e, limit)

over the pixels and their four-neighbour edges.  D is the sampling-insensitive difference of Birchfield and Tomasi
(1998): each pixel is compared with the interval that its partner's intensity covers between the half-way points to its
left and right neighbours, so that half a pixel of sampling offset costs nothing.  All of it is integer arithmetic, so
that the three benchmark models come out number for number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.model.model import Model
from tightmap.problems.images import Picture, as_bytes

Costs = npt.NDArray[np.int32]

# the benchmark's three pairs: stereo(left, right, **STEREO_PRESETS["tsukuba"])
STEREO_PRESETS: dict[str, dict[str, Any]] = {
    "tsukuba": dict(labels=16, power=1, limit=2, weight=20, gradient_threshold=8, gradient_penalty=2),
    "venus": dict(labels=20, squared=True, cap=256, power=2, limit=7, weight=50),
    "teddy": dict(labels=60, cap=48, power=1, limit=1, weight=10, gradient_threshold=10, gradient_penalty=3),
}


def _interval(image: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Lowest and highest value around each pixel: its own and the half-way points to its left and right neighbours."""
    left, right = image.copy(), image.copy()
    left[:, 1:] = (image[:, 1:] + image[:, :-1]) // 2
    right[:, :-1] = (image[:, :-1] + image[:, 1:]) // 2
    return np.minimum(image, np.minimum(left, right)), np.maximum(image, np.maximum(left, right))


def birchfield_tomasi(left: Picture, right: Picture, labels: int, squared: bool = False) -> Costs:
    """(H, W, labels) differences of pixel (y, x) of the left and (y, x - d) of the right image, summed over the bands.

    Where x - d lies outside the image the difference is the largest possible one (255, or its square, per band).
    """
    one, two = left.astype(np.int32), right.astype(np.int32)
    low1, high1 = _interval(one)
    low2, high2 = _interval(two)
    height, width, bands = one.shape
    out = np.full((height, width, labels), bands * (255**2 if squared else 255), dtype=np.int32)
    for d in range(min(labels, width)):
        here, there = slice(d, None), slice(0, width - d)
        first = np.maximum(one[:, here] - high2[:, there], low2[:, there] - one[:, here])
        second = np.maximum(two[:, there] - high1[:, here], low1[:, here] - two[:, there])
        difference = np.maximum(0, np.minimum(first, second))
        out[:, here, d] = (difference**2 if squared else difference).sum(axis=2)
    return out


def edge_weights(image: Picture, threshold: float | None, penalty: float) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Weights (H, W-1) and (H-1, W) of the right and down edges: ``penalty`` where the image is smooth, else 1.

    Smooth means that the squared colour difference, summed over the bands, is less than bands * threshold^2.
    """
    values = image.astype(np.int64)
    weights = []
    for axis in (1, 0):
        square = (np.diff(values, axis=axis) ** 2).sum(axis=2)
        if threshold is None:
            weights.append(np.ones(square.shape))
        else:
            weights.append(np.where(square < image.shape[2] * threshold**2, float(penalty), 1.0))
    return weights[0], weights[1]


def stereo(
    left: npt.ArrayLike,
    right: npt.ArrayLike,
    labels: int,
    *,
    squared: bool = False,
    cap: int | None = None,
    power: int = 1,
    limit: float = 2,
    weight: float = 20,
    gradient_threshold: float | None = None,
    gradient_penalty: float = 1,
) -> Model:
    """A model whose labels are disparities 0 .. labels-1 of the left image of a rectified pair.

    Parameters
    ----------
    left, right : images of one size, (H, W) or (H, W, 3), bytes or numbers in 0..1.
    squared, cap : squared instead of absolute colour differences; the largest cost of a pixel (none by default).
    power, limit, weight : smoothness, weight * min(|difference|^power, limit) with power 1 or 2; limit 1 is Potts.
    gradient_threshold, gradient_penalty : edges where the image is smooth weigh ``gradient_penalty`` times as much.

    ``stereo(left, right, **STEREO_PRESETS[name])`` with tsukuba, venus or teddy gives the benchmark's models of these
    pairs.  Labels of a solution reshaped to (H, W) are the disparity map.
    """
    one, two = as_bytes(left, "left image"), as_bytes(right, "right image")
    if one.shape != two.shape:
        raise ModelError(f"stereo: the images have different shapes, {np.shape(left)} and {np.shape(right)}")
    if not isinstance(labels, int | np.integer) or labels < 1 or power not in (1, 2):
        raise ModelError(f"stereo: labels must be a whole number and power 1 or 2, got {labels!r} and {power!r}")
    data = birchfield_tomasi(one, two, labels, squared)
    if cap is not None:
        np.minimum(data, cap, out=data)
    height, width = one.shape[:2]
    model = Model.grid(height, width, labels)
    model.add_unaries(data.reshape(-1, labels))
    horizontal, vertical = edge_weights(one, gradient_threshold, gradient_penalty)
    weights = weight * np.concatenate([horizontal.ravel(), vertical.ravel()])  # the order of Model.edges
    if limit == 1:
        model.add_potts(model.edges(), weights)
    elif power == 1:
        model.add_truncated_linear(model.edges(), weights, limit)
    else:
        model.add_truncated_quadratic(model.edges(), weights, limit)
    return model
