"""The demo: solve a real rectified stereo pair and draw it beside the ground truth.

The pair is the motorcycle of the Middlebury 2014 collection, which comes with scikit-image; where scikit-image is not
installed, the triple-point inpainting model is built from its geometry and solved instead.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tightmap.driver import Info, solve
from tightmap.model.model import Model
from tightmap.problems.inpainting import inpainting, inpainting_regions
from tightmap.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHRINK = 2  # the full pair has 500 x 741 pixels and 60 disparities
# a truncated data cost for occlusions, and edges that are cheaper to cut where the left image changes colour
STEREO: dict[str, Any] = {"cap": 40, "weight": 5, "limit": 3, "gradient_threshold": 8, "gradient_penalty": 3}

Panels = list[tuple[str, np.ndarray]]


@dataclass
class Demo:
    """A model to show: what it is, the model, and the pictures that belong to a labelling of it."""

    title: str
    model: Model
    panels: Callable[[np.ndarray], Panels]
    result: Result | None = None

    def solve(self, time_limit: float) -> None:
        self.result = solve(self.model, time_limit=time_limit, callback=_progress, trace=True)
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def summary(self) -> str:
        assert self.result is not None
        return f"{self.title}\n{self.result.summary()}"

    def figure(self) -> Figure:
        assert self.result is not None
        return _draw(self.result, self.panels(self.result.labels))


def prepare() -> Demo:
    """The stereo pair, or what can be had without it."""
    try:
        import skimage.data

        pair = skimage.data.stereo_motorcycle()
    except (ImportError, OSError):  # not installed, or its pictures would have to be fetched and cannot be
        return _inpainting()
    return _stereo(pair)


def _progress(info: Info) -> None:
    if sys.stderr.isatty():
        bound = f", bound {info.lower_bound:.0f}" if np.isfinite(info.lower_bound) else ""
        print(f"\r{info.elapsed:5.1f} s  energy {info.energy:.0f}{bound}   ", end="", file=sys.stderr, flush=True)


def _stereo(pair: tuple[Any, Any, Any]) -> Demo:
    from tightmap.problems.images import bad_pixels, disparity_picture, shrink
    from tightmap.problems.stereo import stereo

    left, right = (shrink(image, SHRINK) for image in pair[:2])
    truth = shrink(np.where(np.isfinite(pair[2]), pair[2], np.nan), SHRINK) / SHRINK
    count = int(np.ceil(np.nanmax(truth))) + 1
    h, w = left.shape[:2]

    def panels(labels: np.ndarray) -> Panels:
        disparity = labels.reshape(h, w)
        wrong = bad_pixels(disparity, truth)
        return [
            ("left image", left),
            (f"disparity: {100 * (1 - wrong):.1f} % within one pixel", disparity_picture(disparity, count - 1)),
            ("ground truth", disparity_picture(truth, count - 1)),
        ]

    return Demo(f"stereo pair, {h} x {w} pixels, {count} disparities", stereo(left, right, count, **STEREO), panels)


def _inpainting() -> Demo:
    palette = np.array([[214, 96, 77], [90, 174, 97], [67, 147, 195], [245, 245, 245], [60, 60, 60]], dtype=np.uint8)
    regions = inpainting_regions()
    given = palette[np.where(regions == 3, 4, np.where(regions == 4, 3, regions))]

    def panels(labels: np.ndarray) -> Panels:
        return [("input: the disc is unknown", given), ("labelling", palette[labels.reshape(regions.shape)])]

    return Demo("triple-point inpainting, 120 x 120 pixels", inpainting(), panels)


def _draw(result: Result, panels: Panels) -> Figure:
    """Pictures in a row, energy and bound against time below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(panels), 5.2), layout="constrained", dpi=120)
    grid = figure.add_gridspec(2, len(panels), height_ratios=(3, 1.4))
    for column, (title, picture) in enumerate(panels):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(picture, interpolation="nearest")
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    axes = figure.add_subplot(grid[1, :])
    # the end belongs to the curves: a run that was stopped at once has no other point
    rows = [*result.trace, {"elapsed": result.elapsed, "energy": result.energy, "lower_bound": result.lower_bound}]
    time = [max(row["elapsed"], 1e-4) for row in rows]
    marker = "" if result.trace else "o"
    axes.step(time, [row["energy"] for row in rows], where="post", label="energy", marker=marker)
    bound = [row["lower_bound"] if np.isfinite(row["lower_bound"]) else np.nan for row in rows]
    axes.step(time, bound, where="post", label="certified lower bound", marker=marker)
    axes.set_xlabel("seconds")
    axes.set_xscale("log")
    axes.legend(frameon=False)
    span = 0.04 * abs(result.energy)  # the beginning of both curves is far outside: show where they meet
    axes.set_ylim(result.energy - span, result.energy + span)
    gap = f", gap {100 * result.gap / abs(result.energy):.2f} %" if np.isfinite(result.gap) else ""
    axes.set_title(f"energy {result.energy:.6g}, lower bound {result.lower_bound:.6g}{gap}", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
