"""Small helpers for models made from images: reading, shrinking, pictures and errors of disparity maps."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError

Picture = npt.NDArray[np.uint8]


def read_image(path: str | os.PathLike[str], grey: bool = False) -> Picture:
    """An image file as (H, W, 3) bytes, or (H, W) with ``grey``."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.array(image.convert("L" if grey else "RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise ModelError(f"{path}: not an image that can be read ({error})") from None


def as_bytes(image: npt.ArrayLike, what: str = "image") -> Picture:
    """(H, W, bands) bytes of a grey or colour image; floating-point images are taken as 0..1."""
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise ModelError(f"{what}: expected an image of shape (H, W) or (H, W, 3), got {np.shape(image)}")
    if np.issubdtype(array.dtype, np.floating):
        if not (array.min() >= 0.0 and array.max() <= 1.0):
            raise ModelError(f"{what}: floating-point images must lie in 0..1, got {array.min()} to {array.max()}")
        array = np.rint(array * 255)
    elif not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or array.max() > 255:
        raise ModelError(f"{what}: expected integers in 0..255, got {array.dtype} from {array.min()} to {array.max()}")
    return array.astype(np.uint8)


def shrink(image: npt.ArrayLike, factor: int) -> npt.NDArray[Any]:
    """Means of factor x factor blocks (rows and columns that do not fill a block are cut off).

    Integers are rounded; in floating-point arrays, such as disparity maps, a block is the mean of its finite pixels
    (divide the result by ``factor`` to get disparities in pixels of the small image).
    """
    array = np.asarray(image)
    if factor < 1 or array.ndim < 2 or min(array.shape[:2]) < factor:
        raise ModelError(f"shrink: cannot take blocks of {factor} x {factor} from an image of shape {array.shape}")
    h, w = array.shape[0] // factor, array.shape[1] // factor
    blocks = array[: h * factor, : w * factor].reshape(h, factor, w, factor, *array.shape[2:])
    if np.issubdtype(array.dtype, np.integer):
        return np.rint(blocks.mean(axis=(1, 3))).astype(array.dtype)
    known = np.isfinite(blocks)
    count = known.sum(axis=(1, 3))
    total = np.where(known, blocks, 0.0).sum(axis=(1, 3))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(array.dtype)


def disparity_picture(disparity: npt.ArrayLike, maximum: float | None = None, colours: str = "turbo") -> Picture:
    """(H, W, 3) bytes of a disparity map: near is bright or warm; unknown pixels (0, NaN, infinite) are black.

    ``maximum`` is the disparity that gets the last colour (the largest finite one by default): give two pictures the
    same maximum to compare them.  ``colours`` is a name of a matplotlib colour map.
    """
    import matplotlib

    values = np.asarray(disparity, dtype=np.float64)
    if values.ndim != 2:
        raise ModelError(f"disparity_picture: expected (H, W), got a shape of {values.shape}")
    known = np.isfinite(values) & (values > 0)
    top = float(values[known].max(initial=0.0)) if maximum is None else float(maximum)
    scaled = np.where(known, values, 0.0) / (top or 1.0)
    picture = (matplotlib.colormaps[colours](np.clip(scaled, 0, 1))[:, :, :3] * 255).round().astype(np.uint8)
    picture[~known] = 0
    return picture


def bad_pixels(disparity: npt.ArrayLike, truth: npt.ArrayLike, threshold: float = 1.0) -> float:
    """Share of the pixels with known truth (finite, not 0) whose disparity is wrong by more than ``threshold``."""
    found, right = np.asarray(disparity, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if found.shape != right.shape:
        raise ModelError(f"bad_pixels: the maps have different shapes, {found.shape} and {right.shape}")
    known = np.isfinite(right) & (right != 0)
    return float((np.abs(found[known] - right[known]) > threshold).mean()) if known.any() else 0.0
