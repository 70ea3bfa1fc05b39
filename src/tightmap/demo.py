"""The demo: solve a real rectified stereo pair and draw it beside the ground truth.

The pair is the motorcycle of the Middlebury 2014 collection, which comes with scikit-image; where scikit-image is not
installed, the triple-point inpainting model is built from its geometry and solved instead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tightmap.driver import Info, solve
from tightmap.problems.inpainting import inpainting, inpainting_regions
from tightmap.result import Result

SHRINK = 2  # the full pair has 500 x 741 pixels and 60 disparities
# a truncated data cost for occlusions, and edges that are cheaper to cut where the left image changes colour
STEREO: dict[str, Any] = {"cap": 40, "weight": 5, "limit": 3, "gradient_threshold": 8, "gradient_penalty": 3}


def run(output: Path, time_limit: float) -> str:
    """Solve, write the picture, and say what was found."""
    try:
        import skimage.data
    except ImportError:
        return _inpainting(output, time_limit)
    return _stereo(output, time_limit, skimage.data.stereo_motorcycle())


def _progress(info: Info) -> None:
    if sys.stderr.isatty():
        bound = f", bound {info.lower_bound:.0f}" if np.isfinite(info.lower_bound) else ""
        print(f"\r{info.elapsed:5.1f} s  energy {info.energy:.0f}{bound}   ", end="", file=sys.stderr, flush=True)


def _solve(model: Any, time_limit: float) -> Result:
    result = solve(model, time_limit=time_limit, callback=_progress, trace=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return result


def _stereo(output: Path, time_limit: float, pair: tuple[Any, Any, Any]) -> str:
    from tightmap.problems.images import bad_pixels, disparity_picture, shrink
    from tightmap.problems.stereo import stereo

    left, right = (shrink(image, SHRINK) for image in pair[:2])
    truth = shrink(np.where(np.isfinite(pair[2]), pair[2], np.nan), SHRINK) / SHRINK
    labels = int(np.ceil(np.nanmax(truth))) + 1
    model = stereo(left, right, labels, **STEREO)
    result = _solve(model, time_limit)
    disparity = result.labels.reshape(left.shape[:2])
    wrong = bad_pixels(disparity, truth)
    _draw(
        output,
        result,
        [
            ("left image", left),
            (f"disparity: {100 * (1 - wrong):.1f} % within one pixel", disparity_picture(disparity, labels - 1)),
            ("ground truth", disparity_picture(truth, labels - 1)),
        ],
    )
    h, w = left.shape[:2]
    return f"stereo pair, {h} x {w} pixels, {labels} disparities\n{result.summary()}\npicture written to {output}"


def _inpainting(output: Path, time_limit: float) -> str:
    model = inpainting()
    result = _solve(model, time_limit)
    palette = np.array([[214, 96, 77], [90, 174, 97], [67, 147, 195], [245, 245, 245], [60, 60, 60]], dtype=np.uint8)
    regions = inpainting_regions()
    found = palette[result.labels.reshape(regions.shape)]
    given = palette[np.where(regions == 3, 4, np.where(regions == 4, 3, regions))]
    _draw(output, result, [("input: the disc is unknown", given), ("labelling", found)])
    return f"triple-point inpainting, 120 x 120 pixels\n{result.summary()}\npicture written to {output}"


def _draw(output: Path, result: Result, panels: list[tuple[str, np.ndarray]]) -> None:
    """Pictures in a row, energy and bound against time below."""
    from matplotlib.figure import Figure

    from tightmap.io.atomic import writing

    figure = Figure(figsize=(4 * len(panels), 5.2), layout="constrained", dpi=120)
    grid = figure.add_gridspec(2, len(panels), height_ratios=(3, 1.4))
    for column, (title, picture) in enumerate(panels):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(picture, interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    axes = figure.add_subplot(grid[1, :])
    time = [row["elapsed"] for row in result.trace]
    axes.step(time, [row["energy"] for row in result.trace], where="post", label="energy")
    bound = [row["lower_bound"] if np.isfinite(row["lower_bound"]) else np.nan for row in result.trace]
    axes.step(time, bound, where="post", label="certified lower bound")
    axes.set_xlabel("seconds")
    axes.set_xscale("log")
    axes.legend(frameon=False)
    span = 0.04 * abs(result.energy)  # the beginning of both curves is far outside: show where they meet
    axes.set_ylim(result.energy - span, result.energy + span)
    gap = f", gap {100 * result.gap / abs(result.energy):.2f} %" if np.isfinite(result.gap) else ""
    axes.set_title(f"energy {result.energy:.6g}, lower bound {result.lower_bound:.6g}{gap}", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    with writing(output) as file:
        figure.savefig(file, format="png")
