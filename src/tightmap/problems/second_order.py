"""Stereo with a second-order prior on proposals (the family of Woodford, Torr, Reid and Fitzgibbon, 2009).

The labels of a pixel are not disparities but proposals: complete, piecewise planar disparity maps.  They come from
segmentations of the left image at many scales; each segment gets the plane that fits its matched disparities best.
With d_p the disparity that the chosen proposal gives pixel p, the energy is

    E = sum_p min(C(p, d_p), cap) + sum_{pqr} w_pqr * min(|d_p - 2 d_q + d_r|, tau)

over the pixels and over all horizontal and vertical triples of consecutive pixels.  The triple term charges curvature,
so slanted surfaces are free, and it saturates, so jumps between surfaces cost a constant; w is lower across colour
edges, where jumps are likely.  C is the colour difference to the right image, interpolated between its pixels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.model.model import Model
from tightmap.problems.images import Picture, as_bytes
from tightmap.problems.stereo import birchfield_tomasi


def second_order_stereo(
    left: npt.ArrayLike,
    right: npt.ArrayLike,
    proposals: int | npt.ArrayLike = 14,
    *,
    max_disparity: int | None = None,
    cap: float = 1.0,
    scale: float = 20.0,
    tau: float = 2.0,
    smooth: float = 0.5,
    edge: float = 0.1,
    colour_edge: float = 12.0,
    seed: int = 0,
) -> tuple[Model, FloatArray]:
    """A model over proposals and the (H, W, P) disparities that its labels stand for.

    Parameters
    ----------
    left, right : a rectified pair of one size, (H, W) or (H, W, 3), bytes or numbers in 0..1.
    proposals : how many to make from segmentations (needs scikit-image), or (H, W, P) disparities of your own.
    max_disparity : the largest disparity to look for, by default a quarter of the width.
    cap, scale : a pixel costs min(mean colour difference / scale, cap).
    tau : the curvature, in pixels of disparity, from which on a triple costs no more.
    smooth, edge, colour_edge : the weight of a triple is ``smooth``, or ``edge`` where the mean colour difference of
        two of its neighbouring pixels is more than ``colour_edge`` (of 255).
    seed : of the random samples in the plane fits.
    """
    one, two = as_bytes(left, "left image"), as_bytes(right, "right image")
    if one.shape != two.shape:
        raise ModelError(f"second_order_stereo: the images have different shapes, {np.shape(left)}, {np.shape(right)}")
    height, width = one.shape[:2]
    limit = max(1, width // 4) if max_disparity is None else int(max_disparity)
    if isinstance(proposals, int | np.integer):
        values = plane_proposals(one, two, int(proposals), limit, seed)
    else:
        values = np.asarray(proposals, dtype=np.float64)
        if values.ndim != 3 or values.shape[:2] != (height, width) or not np.isfinite(values).all():
            raise ModelError(f"second_order_stereo: proposals: expected finite ({height}, {width}, P) disparities")
    count = values.shape[2]
    model = Model.grid(height, width, count)
    costs = np.stack([colour_difference(one, two, values[:, :, k]) for k in range(count)], axis=-1)
    model.add_unaries(np.minimum(costs / scale, cap).reshape(-1, count))
    triples, weights = _triples(one, smooth, edge, colour_edge)
    model.add_second_difference(triples, weights, values.reshape(-1, count), tau)
    return model, values


def proposal_disparity(labels: npt.ArrayLike, values: FloatArray) -> FloatArray:
    """(H, W) disparities of a labelling of ``second_order_stereo``."""
    index = np.asarray(labels).reshape(values.shape[:2])
    return np.take_along_axis(values, index[:, :, None], axis=2)[:, :, 0]


def colour_difference(left: Picture, right: Picture, disparity: FloatArray) -> FloatArray:
    """Mean absolute colour difference of each pixel to the right image at x - disparity; 255 outside of it."""
    height, width, _ = left.shape
    place = np.arange(width) - disparity
    base = np.clip(np.floor(place), 0, max(width - 2, 0)).astype(np.int64)
    part = np.clip(place - base, 0.0, 1.0)[:, :, None]
    rows = np.arange(height)[:, None]
    other = right.astype(np.float64)
    value = (1 - part) * other[rows, base] + part * other[rows, np.minimum(base + 1, width - 1)]
    difference = np.abs(left - value).mean(axis=2)
    return np.where((place < 0) | (place > width - 1), 255.0, difference)


def _triples(image: Picture, smooth: float, edge: float, colour_edge: float) -> tuple[IntArray, FloatArray]:
    """All horizontal, then all vertical triples, and their weights."""
    index = np.arange(image.shape[0] * image.shape[1]).reshape(image.shape[:2])
    scopes, weights = [], []
    for axis in (1, 0):
        nodes, pixels = np.moveaxis(index, axis, 0), np.moveaxis(image.astype(np.float64), axis, 0)
        scopes.append(np.stack([nodes[:-2], nodes[1:-1], nodes[2:]], axis=-1).reshape(-1, 3))
        step = np.abs(np.diff(pixels, axis=0)).mean(axis=2)
        weights.append(np.where(np.maximum(step[:-1], step[1:]) > colour_edge, edge, smooth).ravel())
    return np.concatenate(scopes), np.concatenate(weights)


# ---------------------------------------------------------------------- proposals


def matched_disparities(left: Picture, right: Picture, limit: int, window: int = 7) -> FloatArray:
    """(H, W) disparities of the best match of windows, NaN where the two directions of matching disagree.

    Differences are averaged over windows; the minimum is refined by a parabola through its neighbours.
    """
    from scipy.ndimage import uniform_filter

    labels = min(limit + 1, left.shape[1])
    costs = birchfield_tomasi(left, right, labels).astype(np.float64)
    costs = uniform_filter(costs, size=(window, window, 1), mode="nearest")
    best = costs.argmin(axis=2)
    # the costs of the right image are a sheared view: its pixel x with d is the left image's x + d with d
    height, width = best.shape
    columns = np.arange(width)[:, None] + np.arange(labels)
    inside = columns < width
    back = np.where(inside, costs[:, np.minimum(columns, width - 1), np.arange(labels)], np.inf).argmin(axis=2)
    target = np.arange(width) - best
    agrees = target >= 0
    agrees &= np.abs(back[np.arange(height)[:, None], np.maximum(target, 0)] - best) <= 1
    if labels < 3:
        return np.where(agrees, best.astype(np.float64), np.nan)
    middle = np.clip(best, 1, labels - 2)
    low, centre, high = (np.take_along_axis(costs, (middle + k)[:, :, None], axis=2)[:, :, 0] for k in (-1, 0, 1))
    bend = low - 2 * centre + high
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = np.where((best == middle) & (bend > 0), np.clip(0.5 * (low - high) / bend, -0.5, 0.5), 0.0)
    return np.where(agrees, best + shift, np.nan)


def segmentations(image: Picture, count: int) -> list[IntArray]:
    """``count`` segmentations from coarse to fine, in turn graph-based (Felzenszwalb) and by colour clusters (SLIC)."""
    try:
        from skimage.segmentation import felzenszwalb, slic
    except ImportError:
        raise ModelError(
            "second_order_stereo: making proposals needs scikit-image: pip install 'tightmap[images]'"
        ) from None
    pixels = image.shape[0] * image.shape[1]
    picture = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image
    found = []
    for k in range(count):
        t = (k // 2) / max((count - 1) // 2, 1)  # 0 coarse .. 1 fine
        if k % 2 == 0:
            scale = 1000.0 * (50.0 / 1000.0) ** t
            found.append(felzenszwalb(picture, scale=scale, sigma=0.8, min_size=max(8, int(200 * 0.15**t))))
        else:
            segments = max(4, round(pixels / (3000.0 * (120.0 / 3000.0) ** t)))
            found.append(slic(picture, n_segments=segments, compactness=12, start_label=0))
    return [np.asarray(f, dtype=np.int64) for f in found]


def fit_plane(
    points: FloatArray, disparity: FloatArray, rng: np.random.Generator, tolerance: float = 0.75
) -> FloatArray | None:
    """The plane (a, b, c), d = a x + b y + c, with most points within ``tolerance``, refitted to these points.

    points is (m, 2) as (x, y).  Sixty-four triples of points are tried; a level plane through the median is tried too,
    so that a segment without structure does not get an invented slope.  None when there are fewer than three points.
    """
    m = len(points)
    if m < 3:
        return None
    system = np.column_stack([points, np.ones(m)])
    picks = rng.integers(0, m, size=(64, 3))
    corners = system[picks]
    good = np.abs(np.linalg.det(corners)) > 1e-6
    planes = np.zeros((1, 3))
    planes[0, 2] = np.median(disparity)
    if good.any():
        planes = np.concatenate([planes, np.linalg.solve(corners[good], disparity[picks[good]][:, :, None])[:, :, 0]])
    planes = planes[np.abs(planes[:, :2]).max(axis=1) <= 1.0]  # steeper surfaces are hidden in one of the images
    inside = np.abs(planes @ system.T - disparity) <= tolerance
    best = inside.sum(axis=1).argmax()
    chosen = inside[best]
    if chosen.sum() < 3:
        return planes[best]
    return np.linalg.lstsq(system[chosen], disparity[chosen], rcond=None)[0]


def plane_proposals(left: Picture, right: Picture, count: int, limit: int, seed: int = 0) -> FloatArray:
    """(H, W, count) piecewise planar disparity maps, clipped to 0 .. limit."""
    matched = matched_disparities(left, right, limit)
    height, width = matched.shape
    rng = np.random.default_rng(seed)
    known = np.isfinite(matched)
    middle = float(np.median(matched[known])) if known.any() else 0.0
    y, x = (g.ravel().astype(np.float64) for g in np.mgrid[:height, :width])
    out = np.empty((height * width, count))
    for k, segments in enumerate(segmentations(left, count)):
        flat = segments.ravel()
        order = np.argsort(flat, kind="stable")
        starts = np.flatnonzero(np.diff(flat[order])) + 1
        for members in np.split(order, starts):
            sure = members[known.ravel()[members]]
            plane = fit_plane(np.column_stack([x[sure], y[sure]]), matched.ravel()[sure], rng)
            if plane is None:
                out[members, k] = middle
            else:
                out[members, k] = plane[0] * x[members] + plane[1] * y[members] + plane[2]
    return np.clip(out, 0.0, float(limit)).reshape(height, width, count)
