"""The models that a benchmark runs on, by family and name.

An Instance is a promise: it knows its name, what it needs (a file of the data collection, a module), and how to build
itself when a worker process asks for it.  What is built is a Problem: the model and a way to draw its labellings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tightmap.model.model import Model

Drawing = Callable[[Any], Any]  # labels -> (H, W, 3) bytes
PALETTE = np.array(
    [[214, 96, 77], [90, 174, 97], [67, 147, 195], [244, 240, 230], [135, 95, 154], [230, 171, 2], [102, 102, 102]],
    dtype=np.uint8,
)


@dataclass(frozen=True)
class Problem:
    model: Model
    draw: Drawing | None = None


@dataclass(frozen=True)
class Instance:
    """One model of a family.

    published  its name in the published tables, when it is the same model
    best       the best energy known, from any source
    order      the largest factor, so that methods that cannot take it are left out beforehand
    needs      files below the data folder, or "module:NAME"
    reference  pictures to show beside the results: the input, the ground truth
    repeat     labels of a tiny model (tiny.py): building and solving it are timed together, many times
    """

    family: str
    name: str
    build: Callable[[], Problem]
    published: str | None = None
    best: float | None = None
    order: int = 2
    needs: tuple[str, ...] = ()
    reference: Callable[[], dict[str, Any]] | None = None
    repeat: int = 0

    @property
    def missing(self) -> str:
        """What is not there, in words, or nothing."""
        for need in self.needs:
            if need.startswith("module:"):
                if find_spec(need[7:]) is None:
                    return f"the module {need[7:]} is not installed"
            elif not (data_folder() / need).exists():
                return f"{need} is not in {data_folder()} (set TIGHTMAP_DATA)"
        return ""


def data_folder() -> Path:
    """Where files that cannot be generated are: the stereo images and the matching model."""
    return Path(os.environ.get("TIGHTMAP_DATA", "../shared/data"))


def grid_drawing(model: Model) -> Drawing | None:
    """A picture of the labels of a grid model."""
    shape = model.grid_shape
    if shape is None:
        return None
    count = model.max_labels

    def draw(labels: Any) -> Any:
        if count <= len(PALETTE):
            return PALETTE[np.reshape(labels, shape)]
        from tightmap.problems import disparity_picture

        return disparity_picture(np.reshape(labels, shape) + 1, count)

    return draw


# ---------------------------------------------------------------------- builders


def _inpainting(size: int, neighbours: int, inverse: bool) -> Problem:
    from tightmap.problems import inpainting

    model = inpainting(size, neighbours, inverse)
    return Problem(model, grid_drawing(model))


def _inpainting_input(size: int) -> dict[str, Any]:
    from tightmap.problems import inpainting_regions

    shades = np.concatenate([PALETTE[:3], [[40, 40, 40]], PALETTE[3:4]]).astype(np.uint8)
    return {"input, the disc is unknown": shades[inpainting_regions(size)]}


def _matching_file(name: str) -> Problem:
    from tightmap.problems import read_matching

    return Problem(read_matching(data_folder() / name))


def _matching_points(seed: int, points: int, outliers: int) -> Problem:
    from tightmap.problems import match_points, random_points
    from tightmap.view import plot

    left, right, truth = random_points(seed, points, outliers)
    return Problem(
        match_points(left, right, strength=10.0), lambda labels: _raster(plot.matching(left, right, labels, truth))
    )


def _raster(figure: Any) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _stereo_pair(name: str) -> tuple[Any, Any]:
    from tightmap.problems import read_image

    left, right = (read_image(data_folder() / f"stereo/{name}-im{side}.png") for side in "LR")
    return left, right


def _stereo(name: str) -> Problem:
    from tightmap.problems import STEREO_PRESETS, disparity_picture, stereo

    model = stereo(*_stereo_pair(name), **STEREO_PRESETS[name])
    shape, top = model.grid_shape, model.max_labels - 1
    return Problem(model, lambda labels: disparity_picture(np.reshape(labels, shape), top))


def _stereo_reference(name: str, scale: float) -> dict[str, Any]:
    from tightmap.problems import STEREO_PRESETS, disparity_picture, read_image

    truth = read_image(data_folder() / f"stereo/{name}-truedispL.png", grey=True) / scale
    top = STEREO_PRESETS[name]["labels"] - 1
    return {"left image": _stereo_pair(name)[0], "ground truth": disparity_picture(truth, top)}


def _motorcycle(factor: int) -> tuple[Any, Any, Any]:
    import skimage.data

    from tightmap.problems import shrink

    left, right, truth = skimage.data.stereo_motorcycle()
    small = shrink(np.where(np.isfinite(truth), truth, np.nan), factor) / factor
    return shrink(left, factor), shrink(right, factor), small


def _motorcycle_stereo(factor: int) -> Problem:
    from tightmap.problems import disparity_picture, stereo

    left, right, truth = _motorcycle(factor)
    labels = int(np.ceil(np.nanmax(truth))) + 1
    model = stereo(left, right, labels, limit=2, weight=20, gradient_threshold=8, gradient_penalty=2)
    shape = model.grid_shape
    return Problem(model, lambda found: disparity_picture(np.reshape(found, shape), labels - 1))


def _motorcycle_reference(factor: int) -> dict[str, Any]:
    from tightmap.problems import disparity_picture

    left, _, truth = _motorcycle(factor)
    return {"left image": left, "ground truth": disparity_picture(truth, float(np.ceil(np.nanmax(truth))))}


def _segmentation(seed: int, size: int) -> Problem:
    from tightmap.problems import segmentation

    model = segmentation(seed, size)
    return Problem(model, grid_drawing(model))


def _segmentation_reference(seed: int, size: int) -> dict[str, Any]:
    from tightmap.problems import nested_regions

    image, truth = nested_regions(seed, size)
    grey = np.clip((image + 1) / 5 * 255, 0, 255).astype(np.uint8)
    return {"input": np.repeat(grey[:, :, None], 3, axis=2), "ground truth": PALETTE[truth]}


def _middlebury(name: str, scale: float) -> tuple[Any, Any, Any]:
    from tightmap.problems import read_image, shrink

    folder = data_folder() / "middlebury" / name
    left, right = (shrink(read_image(folder / f"{file}.png"), 2) for file in ("im2", "im6"))
    truth = read_image(folder / "disp2.png", grey=True) / scale
    return left, right, shrink(np.where(truth > 0, truth, np.nan), 2) / 2


def _second_order(pair: Callable[[], tuple[Any, Any, Any]], proposals: int) -> Problem:
    from tightmap.problems import disparity_picture, proposal_disparity, second_order_stereo

    left, right, truth = pair()
    top = int(np.ceil(np.nanmax(truth)))
    model, values = second_order_stereo(left, right, proposals, max_disparity=top + 2)
    return Problem(model, lambda labels: disparity_picture(proposal_disparity(labels, values), top))


def _second_order_reference(pair: Callable[[], tuple[Any, Any, Any]]) -> dict[str, Any]:
    from tightmap.problems import disparity_picture

    left, _, truth = pair()
    return {"left image": left, "ground truth": disparity_picture(truth, float(np.ceil(np.nanmax(truth))))}


# ---------------------------------------------------------------------- families


def _ring(neighbours: int, inverse: bool, best: float, size: int = 120) -> Instance:
    name = "ring-inverse" if inverse else "ring"
    return Instance(
        f"inpainting-n{neighbours}",
        name if size == 120 else f"{name}-{size}",
        partial(_inpainting, size, neighbours, inverse),
        published=f"triplepoint4-plain-{name}" if size == 120 else None,
        best=best if size == 120 else None,
        reference=partial(_inpainting_input, size),
    )


def _points(seed: int, points: int = 14, outliers: int = 3) -> Instance:
    name = f"points-{seed}" if points == 14 else f"points-{seed}-{points}"
    return Instance("matching", name, partial(_matching_points, seed, points, outliers))


def _middlebury_stereo(name: str, published: str, scale: float, best: float) -> Instance:
    files = tuple(f"stereo/{name}-{part}.png" for part in ("imL", "imR", "truedispL"))
    return Instance(
        "stereo", name, partial(_stereo, name), published, best, 2, files, partial(_stereo_reference, name, scale)
    )


def _proposals(name: str, pair: Callable[[], tuple[Any, Any, Any]], needs: tuple[str, ...], count: int) -> Instance:
    return Instance(
        "second-order",
        name,
        partial(_second_order, pair, count),
        order=3,
        needs=("module:skimage", *needs),
        reference=partial(_second_order_reference, pair),
    )


def _nested(seed: int, size: int = 32) -> Instance:
    name = f"seed-{seed}" if size == 32 else f"seed-{seed}-{size}"
    return Instance(
        "segmentation",
        name,
        partial(_segmentation, seed, size),
        order=4,
        reference=partial(_segmentation_reference, seed, size),
    )


def _motorcycle_instance(factor: int) -> Instance:
    return Instance(
        "stereo",
        f"motorcycle-{factor}",
        partial(_motorcycle_stereo, factor),
        needs=("module:skimage",),
        reference=partial(_motorcycle_reference, factor),
    )


def _middlebury_proposals(name: str, scale: float) -> Instance:
    files = tuple(f"middlebury/{name}/{part}.png" for part in ("im2", "im6", "disp2"))
    return _proposals(name, partial(_middlebury, name, scale), files, 14)


PAPER: tuple[Instance, ...] = (
    _ring(4, False, 484.590667),
    _ring(4, True, 424.115008),
    _ring(8, False, 495.197990),
    _ring(8, True, 434.316670),
    Instance(
        "matching",
        "matching0",
        partial(_matching_file, "matching/matching0.dd"),
        "matching0",
        19.3629,
        needs=("matching/matching0.dd",),
    ),
    *(_points(seed) for seed in (1, 2, 3)),
    _middlebury_stereo("tsukuba", "tsu-gm", 16, 369218),
    _middlebury_stereo("venus", "ven-gm", 8, 3048043),
    _middlebury_stereo("teddy", "ted-gm", 4, 1342814),
    _motorcycle_instance(3),
    *(_nested(seed) for seed in range(1, 11)),
    _middlebury_proposals("cones", 4),
    _middlebury_proposals("teddy", 4),
    _middlebury_proposals("venus", 8),
    _proposals("motorcycle-4", partial(_motorcycle, 4), (), 14),
)

SMOKE: tuple[Instance, ...] = (
    _ring(4, False, 0.0, size=40),
    _ring(8, True, 0.0, size=24),
    _points(1, 8, 1),
    _motorcycle_instance(12),
    _nested(1, 16),
)

FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(i.family for i in PAPER))


def find(family: str, name: str) -> Instance:
    """The instance of this family and name."""
    from tightmap.bench.duels import INSTANCES

    for instance in (*PAPER, *SMOKE, *INSTANCES):
        if (instance.family, instance.name) == (family, name):
            return instance
    raise KeyError(f"{family}/{name}")
