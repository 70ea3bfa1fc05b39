"""Pictures of labellings, of convergence and of comparisons.

Every function returns a matplotlib Figure made without pyplot, so that nothing needs a display and no global state is
touched; ``save(figure, path)`` writes it, a notebook shows it by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tightmap.model.model import Model
    from tightmap.result import Result

# colours that people with the common colour-vision deficiencies can tell apart (Okabe and Ito)
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#666666", "#f0e442"]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def labelling(
    labels: npt.ArrayLike | Result, shape: tuple[int, int] | None = None, model: Model | None = None, title: str = ""
) -> Figure:
    """Labels of a grid as a picture: few labels get separate colours, many a continuous scale.

    The shape is taken from ``shape``, from ``model.grid_shape``, or from the labels themselves when they are (H, W).
    """
    picture = _as_grid(labels, shape, model)
    height, width = picture.shape
    figure = _figure(4.2, max(1.5, min(8.0, 4.2 * height / width + 0.5)))
    _draw_labels(figure.add_subplot(), picture, int(picture.max(initial=0)) + 1)
    if title:
        figure.axes[0].set_title(title, fontsize=11)
    return figure


def comparison(pictures: Mapping[str, Any], columns: int = 4, model: Model | None = None) -> Figure:
    """Pictures side by side with their titles: results, (H, W) labels, or (H, W, 3) images.

    Labels share one colour scale, and the title of a Result gets its energy.
    """
    if not pictures:
        raise ModelError("comparison: nothing to draw")
    found: dict[str, np.ndarray] = {}
    for title, item in pictures.items():
        if hasattr(item, "energy") and hasattr(item, "labels"):
            found[f"{title} ({item.energy:.8g})"] = _as_grid(item, None, model)
        else:
            array = np.asarray(item)
            found[title] = array if array.ndim == 3 else _as_grid(array, None, model)
    count = max((int(a.max(initial=0)) + 1 for a in found.values() if a.ndim == 2), default=1)
    wide = min(columns, len(found))
    rows = -(-len(found) // wide)
    height, width = next(iter(found.values())).shape[:2]
    cell = 3.2
    figure = _figure(cell * wide, rows * (min(2.5 * cell, cell * height / width) + 0.35))
    for place, (title, array) in enumerate(found.items()):
        axes = figure.add_subplot(rows, wide, place + 1)
        if array.ndim == 3:
            axes.imshow(array, interpolation="nearest")
            axes.set_axis_off()
        else:
            _draw_labels(axes, array, count)
        axes.set_title(title, fontsize=10)
    return figure


def convergence(results: Result | Mapping[str, Result] | Sequence[Result]) -> Figure:
    """Energy (solid) and certified lower bound (dashed) against time, on a logarithmic time axis.

    Takes one result, several, or a dict of names and results, each from ``solve(..., trace=True)``.  A result without
    recorded steps (it ended before the first one, or trace=True was not given) is a point, and the picture says so.
    """
    if isinstance(results, Mapping):
        named = {str(k): v for k, v in results.items()}
    else:
        several = list(results) if isinstance(results, Sequence) else [results]
        named = {}
        for result in several:
            name = result.method if result.method not in named else f"{result.method} ({len(named) + 1})"
            named[name] = result
    figure = _figure(7.0, 4.0)
    axes = figure.add_subplot()
    values: list[float] = []
    empty: list[str] = []
    for k, (name, result) in enumerate(named.items()):
        if not result.trace:
            empty.append(name)
        colour = COLOURS[k % len(COLOURS)]
        rows = [*result.trace, {"elapsed": result.elapsed, "energy": result.energy, "lower_bound": result.lower_bound}]
        time = np.maximum([row["elapsed"] for row in rows], 1e-4)
        for key, dashes, label in (("energy", "-", name), ("lower_bound", "--", "")):
            line = np.array([row[key] for row in rows], dtype=np.float64)
            line[~np.isfinite(line)] = np.nan
            if np.isfinite(line).any():
                text = label or f"{name}, bound"
                marker = "o" if np.isfinite(line).sum() == 1 else ""  # a line of one point cannot be seen
                style: dict[str, Any] = {"color": colour, "label": text, "linewidth": 1.6, "marker": marker}
                axes.step(time, line, dashes, where="post", **style)
                values.append(float(np.nanmax(line) if key == "lower_bound" else np.nanmin(line)))
                values.append(_start_of_interest(line))
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("energy (solid), lower bound (dashed)")
    if values:
        low, high = min(values), max(values)
        margin = max(0.04 * (high - low), 1e-9 * abs(high)) if high > low else 0.01 * abs(high) or 0.01
        axes.set_ylim(low - margin, high + margin)
        axes.legend(frameon=False, fontsize=9)
    else:
        axes.text(0.5, 0.5, "no feasible labelling and no bound", transform=axes.transAxes, ha="center")
    if empty:
        axes.set_title(f"no steps recorded: {', '.join(empty)}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _start_of_interest(line: npt.NDArray[np.float64]) -> float:
    """The value after the first twentieth of the steps: the first few are far away and would flatten the rest."""
    known = line[np.isfinite(line)]
    return float(known[len(known) // 20])


def matching(
    left: npt.ArrayLike, right: npt.ArrayLike, labels: npt.ArrayLike | Result, truth: npt.ArrayLike | None = None
) -> Figure:
    """Two sets of points in the plane side by side and the matching as lines; wrong ones are dashed given the truth."""
    p, q = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    chosen = _plain(labels)
    right_answer = None if truth is None else np.asarray(truth)
    low = min(p.min(), q.min())
    span = float(max(p.max(), q.max()) - low) or 1.0
    shift = np.array([1.35 * span, 0.0])
    figure = _figure(4.4, 2.2)
    axes = figure.add_subplot()
    for i, a in enumerate(chosen.tolist()):
        if a >= len(q):
            continue  # unmatched
        good = right_answer is None or right_answer[i] == a
        ends = np.stack([p[i], q[a] + shift])
        axes.plot(ends[:, 0], ends[:, 1], "-" if good else "--", color=COLOURS[2 if good else 1], linewidth=1.6)
    axes.plot(p[:, 0], p[:, 1], "o", color=COLOURS[0], markersize=5)
    axes.plot(q[:, 0] + shift[0], q[:, 1], "o", color=COLOURS[0], markersize=5)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure; the suffix says the format (.png, .svg, .pdf).  The file appears complete or not at all."""
    from tightmap.io.atomic import writing

    kind = check_format(path)
    with writing(path) as stream:
        figure.savefig(stream, format=kind)


def check_format(path: str | os.PathLike[str]) -> str:
    """The format that the suffix names, or an error that lists those that there are."""
    from matplotlib.backend_bases import FigureCanvasBase

    kind = Path(path).suffix.lower().lstrip(".") or "png"
    known = FigureCanvasBase.get_supported_filetypes()
    if kind not in known:
        raise ModelError(f"{path}: pictures are written as {', '.join(sorted(known))}, not {kind}")
    return kind


def _plain(labels: Any) -> np.ndarray:
    return np.asarray(labels.labels if hasattr(labels, "labels") else labels)


def _as_grid(labels: Any, shape: tuple[int, int] | None, model: Model | None) -> np.ndarray:
    array = _plain(labels)
    wanted = shape if shape is not None else getattr(model, "grid_shape", None)
    if wanted is None and array.ndim == 2:
        return array
    if wanted is None or array.size != wanted[0] * wanted[1]:
        raise ModelError(f"plot: {array.shape} labels are not a picture of shape {wanted}; give shape=(height, width)")
    return array.reshape(wanted)


def _draw_labels(axes: Axes, picture: np.ndarray, count: int) -> None:
    from matplotlib.colors import ListedColormap

    if count <= len(COLOURS):
        colours: Any = ListedColormap(COLOURS[: max(count, 1)])
    else:
        colours = "turbo"
    axes.imshow(picture, cmap=colours, vmin=-0.5, vmax=max(count, 1) - 0.5, interpolation="nearest")
    axes.set_axis_off()
